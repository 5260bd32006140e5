"""The verbs of `python run.py do=...`, one file each, and the command line that calls them."""

VERBS = (
    *("train", "prepare", "baselines", "plan", "status", "compare", "export"),
    *("outputs", "curves", "check", "report", "bench", "verify", "list"),
)
