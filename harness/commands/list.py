"""do=list: every name that can be typed, with the first comment of its yaml file; with task=..., its data card."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from harness.config.compose import default_arguments, option_config, options, recipes
from harness.config.declared import declared
from harness.config.overrides import key_of
from harness.config.schema import DECLARES, SHORT_CONV
from harness.errors import UsageError
from harness.progress import announce_torch
from harness.records.data_cards import cards

UNREADABLE = (UsageError, HydraException, OmegaConfBaseException, YAMLError, OSError, LookupError, AttributeError)
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
    typed = [key for key in map(key_of, overrides) if key.split(".")[0] == "task"]
    if settings := [key for key in typed if key != "task"]:
        raise UsageError(f"do=list does not read {settings[0]}=: task=... prints a task's data card")
    if typed:
        print_card(cfg.task.name)
    else:
        print_names()
    return 0


def print_names() -> None:
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
            for line in declarations(name) if group == "model" else ():
                print(f"  {'':<{width}}  {line}")
    print("\npython run.py model=<model> task=<task> [protocol=<protocol>] [budget=reduced] runs one cell")


def declarations(model: str) -> Iterator[str]:
    """`decoding state: 2 * slots * dim; model.slots scales it` and `local mixing: conv 4 + window 128`, as published;
    nothing that a model does not declare, or that cannot be read."""
    with contextlib.suppress(*UNREADABLE):
        config = option_config("model", model)
        if state := declared(config).state:
            scale = f"; model.{state.scales_with} scales it" if state.scales_with else ""
            yield f"decoding state: {state.numbers}{scale}"
        if mixing := local_mixing(config.get(DECLARES) or {}, default_arguments(model)):
            yield f"local mixing: {mixing}"


def print_card(task: str) -> None:
    """Print the data card of a task. The hashes of files come from its modules, which import torch."""
    card = cards().get(task)
    print(f"{task}  {dict(options('task')).get(task, '')}".rstrip())
    print(f"  protocols: {', '.join(recipes(task)) or 'those that serve every task'}\n")
    if card is None:
        print("it has no data card: harness/records/data_cards.py says how to write one")
        return
    if card.files:
        announce_torch()
    print(card.text())


def local_mixing(declares: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """`conv 4 + window 8`, the declared mixing with the model's settings; empty if none is declared."""
    first, *others = str(declares.get("local") or "").split(" + ")
    off = declares.get(SHORT_CONV) or {}
    parts = others if off and all(settings.get(key) == value for key, value in off.items()) else [first, *others]
    return " + ".join(parts).format(**settings) or ("none" if off else "")
