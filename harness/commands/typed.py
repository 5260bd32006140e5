"""Checks of the typed words of a command, before anything is composed: what the verb would ignore is refused."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.commands.hints import file_as_name, not_key_value
from harness.config.compose import NAMED, names_in
from harness.config.overrides import key_of, typed_values
from harness.config.schema import Config
from harness.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from harness.config.sweep import Command

NARROWED = ("do", "paths", "table", "model", "task", "protocol", "budget", "seed")
# what a verb that runs no cell reads of what can be typed; it refuses the rest
READS = {
    "status": (*NARROWED, "status"),
    "compare": ("do", "paths", "cells"),
    "export": ("do", "paths", "cells", "trusted_packages", "model", "task", "backbone"),
    "curves": NARROWED,
    "report": ("do", "paths", "table", "figure", "check", "format", "trusted_packages"),
    "check": ("do", "paths"),
    "list": ("do", "task"),
    "verify": (
        "do",
        "paths",
        "model",
        "task",
        "protocol",
        "budget",
        "backbone",
        "settings",
        "trusted_packages",
        "record",
    ),
}
# what the verbs that read a whole recipe do not read, and the verb that does
READ_ELSEWHERE = {"check": "report", "format": "report", "cells": "compare", "figure": "report", "status": "status"}
READ_ELSEWHERE |= {"bench": "bench", "record": "verify"}
OF_CELL = ("model", "task", "backbone")  # do=export takes keys below them
ONE_OF = ("model", "task", "protocol", "budget", "table", "figure")  # groups with one option
LONGEST_SHOWN = 100  # letters of a word
OF_BENCH = ("bench", "figure")  # further keys of do=bench
NOT_OF_BENCH = ("seed", "rerun", "n_jobs", "fail_fast", "checkpoint", "logger", "debug")
OF_RECIPE = ("backbone", "train", "protocol", "budget", "settings")  # do=bench reads them for the model of a recipe
OF_LAYER = tuple(f"bench.{key}" for key in ("pattern", "dim", "heads", "layers", "decoder"))  # a recipe sets these
OF_MEASURE = {"bench.chunk": "forward"}  # key of do=bench: the measure that reads it
OF_MEASURE |= {f"bench.{key}": "generate" for key in ("mode", "batches", "prompt", "top_k")}
OF_STATUS = ("state", "since", "page")  # do=status takes them without `status.`
OF_SWEEPER = ("hydra.sweeper.trials", "hydra.sweeper.seed")
# folders of Hydra that nothing is written into here
UNUSED = ("hydra.run.dir", "hydra.job.chdir", "hydra.sweep.dir", "hydra.sweep.subdir", "hydra.output_subdir")
CHOSEN = ("hydra.launcher", "hydra.sweeper")
NO_NAME = re.compile(r"null|true|false|[-+]?\d[\d_]*(\.\d*)?(e[-+]?\d+)?", re.IGNORECASE)  # what Hydra reads as no text
OTHER_THAN_NAME = re.compile(r"^/|/$|\\|\s|^conf/|\.(ya?ml|md|py|csv|html)$")  # a path of a file, or a slip


def check_typed(overrides: Sequence[str], search: Sequence[str] = ()) -> None:
    """Raises UsageError for typed settings that the command would not use. They went through `rewrite`.

    `search`: further config folders, which may have groups of their own.
    """
    typed = typed_values(overrides)
    refuse_ignored(do := typed.get("do", "train"), overrides)
    if do == "bench":
        refuse_ignored_by_bench(typed)
    refuse_twice(overrides)
    refuse_no_names(overrides)
    if re.fullmatch(r"[\w.:/]+", module := typed.get("model.module", "")):
        raise UsageError(f"model.module={module}: a class is typed model.module._target_={module}")
    if not re.fullmatch(r"true|false|\[.*\]", verbose := typed.get("hydra.verbose", "true"), re.IGNORECASE):
        raise UsageError(f"hydra.verbose={verbose}: true, false or a list of loggers is expected")
    launcher, launchers = typed.get("hydra/launcher"), names_in("hydra/launcher")
    if launcher is not None and launcher not in launchers and not is_group("hydra/launcher", search):
        raise UsageError(f"there is no hydra/launcher '{launcher}': {did_you_mean(launcher, launchers)}")
    for override in overrides:
        if key_of(override) in UNUSED:
            raise UsageError(f"{key_of(override)}= moves nothing here: paths.outputs= is the folder of the runs")
        if key_of(override) in CHOSEN:
            raise UsageError(f"{override}: type {override.replace('.', '/', 1)}, which chooses one")
        if key_of(override).startswith("hydra.launcher."):
            raise UsageError(f"{key_of(override)}=: resources=, cluster= and n_jobs= say how cells and jobs run")
        is_unread = typed.get("hydra/sweeper") is None or key_of(override) not in OF_SWEEPER
        if key_of(override).startswith("hydra.sweeper.") and is_unread:
            raise UsageError(f"{key_of(override)}=: hydra.sweeper.trials= and .seed= belong to -m hydra/sweeper=optuna")
        if override.startswith("+"):
            refuse_added(key_of(override), search)


def refuse_ignored(do: str, overrides: Sequence[str]) -> None:
    """Raises UsageError for a typed key that the verb would not read."""
    for override in overrides:
        key = key_of(override)
        part = key.split(".")[0]
        reads = READS.get(do)
        names = [name for entry in reads or () for name in (OF_STATUS if entry == "status" else [entry])]
        takes = ", ".join(f"{name}=" for name in names[1:])
        if reads is not None and "=" not in override and not override.startswith(("-", "~")):
            raise UsageError(f"{not_key_value(override)}; do={do} takes {takes}")
        if reads is not None and part not in reads:
            raise UsageError(f"do={do} does not read {key}=: it takes {takes}")
        if do == "export" and key in OF_CELL:
            raise UsageError(
                f"do=export does not read {key}=: the cell has its {key}; {key}.path=... sets one of its paths"
            )
        if reads is None and part in READ_ELSEWHERE and not (do == "bench" and part in OF_BENCH):
            verb = READ_ELSEWHERE[part]
            raise UsageError(f"do={do} does not read {key}=, do={verb} does: python run.py do={verb} ...")


def refuse_ignored_by_bench(typed: Mapping[str, str]) -> None:
    """Raises UsageError for a typed key that do=bench would not read. A table or figure says what is read."""
    has_runs = any(typed.get(group, "null") != "null" for group in ("table", "figure"))
    measures = re.findall(r"\w+", typed.get("bench.what", "forward"))
    for key in typed:
        part = key.split(".")[0]
        if part in NOT_OF_BENCH:
            raise UsageError(f"do=bench does not read {key}=: it runs no cell")
        if has_runs:
            continue
        if key == "bench.run":
            raise UsageError("bench.run= is a run of a table or figure: add table=... or figure=...")
        if part in OF_RECIPE and "task" not in typed:
            raise UsageError(f"do=bench reads {key}= for the model of a recipe: add task=..., or leave it out")
        if key.startswith(OF_LAYER) and "task" in typed:
            raise UsageError(f"{key}=: the recipe sets it; leave {key} out, or task= for one layer")
        if key.startswith("bench.decoder") and "bench.layers" not in typed:
            raise UsageError("bench.decoder is the decoder around layers: add bench.layers=2")
        if (measure := OF_MEASURE.get(key, measures[0] if measures else "")) not in measures:
            raise UsageError(f"only what={measure} reads {key}=: add {measure} to what=, or leave {key} out")


def refuse_no_names(overrides: Iterable[str]) -> None:
    """Raises UsageError for `model=null`, `budget=5` and several settings in one word, `"model=lavo task=x"`."""
    for override in overrides:
        if override.startswith("~") and key_of(override) in ONE_OF:
            raise UsageError(f"{override}: every command has one; {key_of(override)}=... chooses another")
    for key, value in typed_values(overrides).items():
        if re.search(r"[\s,;][+~\w./]+=", value) and key in NAMED:
            raise UsageError(f"'{key}={value[:LONGEST_SHOWN]}' is one word: type each setting as a word of its own")
        if value.startswith("[") and key in ONE_OF:
            raise UsageError(f"{key}={value[:LONGEST_SHOWN]}: a name is expected; {key}=a,b with -m runs both")
        if key in NAMED and OTHER_THAN_NAME.search(value) and (name := file_as_name(key, value)):
            raise UsageError(f"'{key}={value[:LONGEST_SHOWN]}' is no name: {key}={name} chooses it")
        if (not value.strip() or NO_NAME.fullmatch(value)) and key in NAMED:
            raise UsageError(f"there is no {key} '{value}': {did_you_mean(value, names_in(key))}")


def refuse_twice(overrides: Iterable[str]) -> None:
    """Raises UsageError for two options of one group, `model=lavo model=vanilla`, or two seeds: one would count."""
    groups = Counter(key_of(word) for word in set(overrides) if key_of(word) in (*NAMED, "seed"))
    if twice := [group for group, count in groups.items() if count > 1]:
        raise UsageError(f"{twice[0]}= is typed twice: leave one out, or type {twice[0]}=a,b with -m to run both")


def refuse_added(key: str, search: Sequence[str]) -> None:
    """Raises UsageError for `+key=value` where the harness has the keys of a node and would not read another."""
    node: type = Config
    parts = key.split("@")[0].split(".")
    if key.startswith("logger.csv"):
        raise UsageError(f"+{key}: metrics.csv in the run folder has no settings; paths.outputs=... moves it")
    for number, part in enumerate(parts):
        entries: Mapping[str, type] = {entry.name: entry.type for entry in fields(node)}
        if part not in entries:
            if not number and ("/" in part or part in (*NAMED, "hydra") or is_group(part, search)):
                return
            path = ".".join([*parts[:number], ""])
            hint = did_you_mean(part, entries)
            raise UsageError(f"+{key}: nothing reads {path}{part}; {hint} (python run.py --cfg job shows all keys)")
        if not is_dataclass(entries[part]):
            return
        node = entries[part]


def require_choice(commands: "Iterable[Command]") -> None:
    """Raises UsageError for a run without its task and its scale, which would be the default task for days."""
    for command in commands:
        typed = typed_values(command.overrides)
        if not {"task", "table", "budget"} & typed.keys() and not any(key.startswith("task.") for key in typed):
            raise UsageError(
                "type task= or table= (python run.py do=list shows them), and budget=smoke for a first run of seconds"
            )


def is_group(name: str, search: Sequence[str]) -> bool:
    return any(Path(folder, name).is_dir() for folder in search)
