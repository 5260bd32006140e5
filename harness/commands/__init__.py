"""The verbs of `python run.py do=...`, one file each, and the command line that calls them."""
