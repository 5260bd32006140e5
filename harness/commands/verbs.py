"""The verbs of `do=`. The module of the same name in this package runs each."""

VERBS = (
    *("train", "prepare", "baselines", "plan", "status", "compare", "export"),
    *("curves", "check", "report", "bench", "verify", "list"),
)
