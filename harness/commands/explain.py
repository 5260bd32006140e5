"""Hydra's and OmegaConf's errors of composition in one line: what is wrong, where, and what would be right."""

import re
from collections.abc import Sequence

from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from harness.config.compose import NAMED, compose, options, recipes
from harness.config.resolvers import UNNAMED
from harness.errors import did_you_mean, one_line


def explain(error: BaseException, arguments: Sequence[str]) -> str | None:
    """One line for an error of composition, or None for one that no override causes."""
    text, cause = str(error), error.__cause__
    if isinstance(error, YAMLError):
        return not_yaml(error)
    if found := re.search(r"Could not find '([^']+)'", text):
        return unknown_option(found[1], text)
    if found := re.search(r"Could not override '([^']+)'", text):
        return unknown_key(found[1])
    if found := re.search(r"Error merging override (\S+)", text):
        return f"{found[1]}: {first_line(cause or error)} (python run.py --cfg job shows every key and its value)"
    if found := re.search(r"Ambiguous value for argument '([^']+)'", text):
        return f"{found[1]} names several values: add -m to sweep over them, python run.py -m {' '.join(arguments)}"
    if found := re.search(r"Error parsing override '([^']*)'", text):
        return f"'{found[1]}' is not key=value (python run.py --help)"
    if "LexerNoViableAlt" in text or "OverrideParse" in type(error).__name__ or "Config group override" in text:
        return (
            f"cannot read {' '.join(arguments)}: settings are typed key=value, quoted if they hold special characters"
        )
    if isinstance(error, OmegaConfBaseException):
        key = getattr(error, "full_key", None)
        return f"{key + ': ' if key else ''}{first_line(error)} (python run.py --cfg job shows every key)"
    if isinstance(error, HydraException):
        return first_line(error)
    return None


def not_yaml(error: YAMLError) -> str:
    """Where a file of the configuration cannot be read."""
    mark = getattr(error, "problem_mark", None)
    return f"{mark.name}:{mark.line + 1}: {one_line(error.problem)}" if mark else first_line(error)


def first_line(error: BaseException) -> str:
    return one_line(str(error).split("\n")[0])


def unknown_option(path: str, text: str) -> str:
    """`model/lavoo`, `protocol/google/lm/pg19`, `task/lra/listop`, `hydra/launcher/slrum`."""
    for group in NAMED:
        if not path.startswith(group + "/"):
            continue
        name = path[len(group) + 1 :]
        known = [option for option, _ in options(group)]
        if name.startswith(UNNAMED):
            task = name.removeprefix(UNNAMED + "/")
            fitting = ", ".join(recipes(task)) or "none"
            return f"task '{task}' names no protocol: add protocol=...; protocols that have a recipe for it: {fitting}"
        for option in known:
            if group in ("protocol", "budget") and name.startswith(option + "/"):
                task = name[len(option) + 1 :]
                fitting = ", ".join(recipes(task)) or "none"
                return f"{group} '{option}' has no recipe for task '{task}'; protocols that have: {fitting}"
        return f"there is no {group} '{name}': {did_you_mean(name, known)} (python run.py do=list)"
    group, _, name = path.rpartition("/")
    listed = re.findall(r"^\t(\S+)$", text, flags=re.MULTILINE)
    known = [option for option in listed if not option.startswith("provider=")]
    return f"there is no {group} '{name}': {did_you_mean(name, known)}"


def unknown_key(key: str) -> str:
    """A key outside the schema. It is compared with the keys of its own node first, then with all of them."""
    from harness.config.cell import flatten

    values = OmegaConf.to_container(compose(), enum_to_str=True)
    known = {name.rpartition(".")[0] for name in flatten(values)} | set(flatten(values)) | set(NAMED)
    known.discard("")
    parent = key.rpartition(".")[0]
    siblings = {name for name in known if parent and name.rpartition(".")[0] == parent}
    listed = siblings or {name for name in known if "." not in name}
    meant = did_you_mean(key, siblings or known, listed)
    return f"there is no key '{key}': {meant} (python run.py --cfg job shows them all)"
