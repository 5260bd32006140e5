"""do=list: every name that can be typed, with one line each, read from the comment that opens its file."""

from collections.abc import Sequence

from omegaconf import DictConfig

from harness.config.compose import options, recipes

GROUPS = {
    "model": "models",
    "task": "tasks",
    "protocol": "protocols",
    "budget": "budgets",
    "table": "tables",
    "figure": "figures",
    "trainer": "trainers",
    "resources": "resources",
    "cluster": "clusters",
    "hydra/launcher": "launchers, with -m",
    "logger": "loggers",
    "debug": "debug aids",
}


def run(cfg: DictConfig, overrides: Sequence[str]) -> int:
    for group, title in GROUPS.items():
        found = list(options(group))
        if not found:
            continue
        print(f"{title} ({group}=)")
        width = max(len(name) for name, _ in found)
        for name, description in found:
            print(f"  {name:<{width}}  {description}".rstrip())
            if group == "task":
                print(f"  {'':<{width}}  protocols: {', '.join(recipes(name))}")
    print("\npython run.py model=<model> task=<task> [protocol=<protocol>] [budget=reduced] runs one cell")
    return 0
