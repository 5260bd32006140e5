"""One cell trained, selected and tested in this process: `run_cell`."""
