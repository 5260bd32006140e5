"""The harness: from overrides to cells, records and tables. It knows no model and no task by name."""
