"""Trains, selects and tests a cell in this process: `run_cell`. `attempt` tells how."""
