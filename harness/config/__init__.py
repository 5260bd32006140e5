"""Overrides -> configuration -> cell -> task and model. `tests/import_map.py` lists the rooms of these files."""
