"""do=list: every name that can be typed, each with the comment that opens its yaml file."""

from collections.abc import Sequence

from omegaconf import DictConfig

from harness.config.compose import options, recipes

TITLES = {
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
    for group, title in TITLES.items():
        names = list(options(group))
        if not names:
            continue
        print(f"{title} ({group}=)")
        width = max(len(name) for name, _ in names)
        for name, description in names:
            print(f"  {name:<{width}}  {description}".rstrip())
            if group == "task":
                print(f"  {'':<{width}}  protocols: {', '.join(recipes(name))}")
    print("\npython run.py model=<model> task=<task> [protocol=<protocol>] [budget=reduced] runs one cell")
    return 0
