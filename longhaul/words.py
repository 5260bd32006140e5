"""The arguments of the functions as words of the command line: `seed=[1, 2]` as `seed=1,2`, and your own classes."""

import functools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from harness.commands.mistakes import check_typed, in_one_line, refuse_ignored
from harness.commands.rewrite import MULTIRUN, rewrite
from harness.config.compose import NAMED
from harness.config.overrides import in_grammar, key_of, split_sweep, to_overrides, typed_values
from harness.config.sweep import Command, compose_commands
from harness.errors import UsageError, one_line, shown, with_known_arguments
from harness.records.record import RecordError

# keys whose list of values means a sweep, or for do=bench a comparison
SWEPT = ("model", "task", "protocol", "budget", "seed", "table", "lengths", "what", "mode")
LONGEST_SHOWN = 200  # letters of a path
PATTERN = re.compile(r"[\w/.*?-]+")  # `latte*`: all options of this kind
OF_SWEEPS = ("hydra/launcher", "hydra/sweeper")
CONTRACT = "patterns"  # an attribute of a class that follows models/attention/base.py


@dataclass(frozen=True)
class OwnModule:
    """`overrides`: what chooses the class on the command line."""

    overrides: tuple[str, ...]


def attention(module: type, *, causal: bool = False, name: str | None = None, **arguments: Any) -> OwnModule:
    """A class as the `model` of `run` and `plan`: a plain `nn.Module` (B, N, D) -> (B, N, D), or an `Attention`.

    `causal`: a plain module may fill causal slots; a run refuses it if it sees later tokens. `name`: what records and
    tables call it, by default the class's own name in small letters. `arguments`: those of its constructor, which also
    gets the sizes that it has names for (`models.attention.module`). The class stands in a file that can be imported,
    because other processes import it; passing it here trusts its package. Raises UsageError.
    """
    if not isinstance(module, type):
        raise UsageError(f"attention: a class is expected, not {type(module).__name__}; its arguments are keywords")
    if not isinstance(causal, bool):
        raise UsageError(f"attention: causal={str(causal)[:60]!r}: True or False is expected")
    if name is not None and not isinstance(name, str):
        raise UsageError(f"attention: name={str(name)[:60]!r}: a text is expected")
    path = f"{module.__module__}.{module.__qualname__}"
    if module.__module__ == "__main__" or "<locals>" in path:
        raise UsageError(f"attention: {module.__qualname__} cannot be imported: put it into a file, then import it")
    if not callable(getattr(module, "forward", None)):
        raise UsageError(f"attention: {path} is no torch.nn.Module: it has no forward")
    settings: dict[str, Any] = {"model.name": name or module.__name__.lower()}
    if hasattr(module, CONTRACT):
        choice, prefix = "custom", "model."
    else:
        choice, prefix = "module", "model.module."
        settings["model.causal"] = causal
    settings |= {f"{prefix}_target_": path, "trusted_packages": [path.partition(".")[0]]}
    added = to_overrides({f"+{prefix}{key}": value for key, value in arguments.items()})
    return OwnModule((f"model={choice}", *to_overrides(settings), *added))


def commands_of(overrides: Sequence[str], settings: Mapping[str, Any], verb: str = "train") -> list[Command]:
    """The composed commands of overrides and keywords. Raises UsageError with the line that `run.py` would print."""
    words = [*map(checked, overrides), *(word for key, value in settings.items() for word in words_of(key, value))]
    if (do := typed_values(words).get("do", "train")) != "train":
        raise UsageError(f"do={do}: longhaul has functions for it (help(longhaul)); leave do= out")
    if other := [word for word in words if key_of(word) in OF_SWEEPS]:
        raise UsageError(f"{other[0]}: functions run here; python run.py -m {other[0]} runs elsewhere or searches")
    words += [f"do={verb}"] if verb != "train" else []
    with in_one_line(words):
        overrides = [word for word in rewrite(words) if word not in MULTIRUN]
        check_typed(overrides)
        return compose_commands(split_sweep(overrides))


def checked(override: Any) -> str:
    """An override as text. Raises UsageError for a value of another type, an empty text or a command-line flag."""
    if not isinstance(override, str):
        kind = type(override).__name__
        raise UsageError(f"settings are texts, 'model=lavo', or keywords, model='lavo'; a {kind} is neither")
    if not override.strip():
        raise UsageError("a setting is empty: type key=value, or leave it out")
    if override.startswith("-") and override not in MULTIRUN:
        raise UsageError(f"{override}: flags are typed after python run.py; functions take key=value")
    return override


def words_of(key: str, value: Any) -> list[str]:
    """A keyword as words of the command line. Raises UsageError for a value that cannot be typed."""
    if isinstance(value, OwnModule):
        return list(value.overrides)
    if isinstance(value, (list, tuple)) and any(isinstance(entry, OwnModule) for entry in value):
        raise UsageError(f"{key}: a class of your own runs in a command of its own, not in a list")
    value = plain(key, value)
    if isinstance(value, Mapping) and key not in NAMED and "_target_" not in value:
        return [word for name, entry in value.items() for word in words_of(f"{key}.{name}", entry)]
    if value is None and key in NAMED:
        raise UsageError(f"{key}=None: give a name, or leave {key} out")
    if key in SWEPT and isinstance(value, list):
        if not value:
            raise UsageError(f"{key}=[]: no value; leave {key} out, or name one or more")
        return [f"{key}={','.join(map(in_grammar, value))}"]
    if key in NAMED and isinstance(value, str) and PATTERN.fullmatch(value):
        return [f"{key}={value}"]
    return [f"{key}={in_grammar(value)}"]


def plain(key: str, value: Any) -> Any:
    """Text, number, true or false, None, list or mapping. Raises UsageError for any other value."""
    if OmegaConf.is_config(value):
        value = OmegaConf.to_container(value)
    if getattr(value, "shape", None) == () and hasattr(value, "item"):  # a number of NumPy or torch
        value = value.item()
    if isinstance(value, Mapping):
        return {str(name): plain(f"{key}.{name}", entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple, range)):
        return [plain(key, entry) for entry in value]
    if isinstance(value, os.PathLike):
        return str(value)
    if isinstance(value, (str, bool, int, float, type(None))):
        return value
    shown = value.__name__ if isinstance(value, type) else type(value).__name__
    if key == "model":
        raise UsageError(f"model={shown}: a name is expected, or longhaul.attention(MyModule) for a class of yours")
    raise UsageError(f"{key}: {shown} is no value that can be typed: text, number, true or false, list or mapping")


def single_command(
    name: str, overrides: Sequence[str], settings: Mapping[str, Any], *, verb: str = "train", reads: str | None = None
) -> Command:
    """The composed command of a function. Raises UsageError for a sweep, and for a key that it does not read.

    `reads`: the verb whose keys it reads, if not `verb`.
    """
    commands = commands_of(overrides, settings, verb)
    if len(commands) > 1:
        raise UsageError(f"longhaul.{name} takes one value per key: call it once for each")
    refuse_ignored(reads or verb, commands[0].overrides)
    return commands[0]


def path_of(root: Any, default: str) -> Path:
    """The file or folder that an argument names, `default` for None. Raises UsageError for what is no path."""
    if root is None:
        return Path(default)
    if not isinstance(root, (str, os.PathLike)):
        raise UsageError(f"a file or folder is a path, not a {type(root).__name__}")
    if not os.fspath(root):
        raise UsageError("a file or folder is a path, not an empty text; the current folder is '.'")
    return Path(root)


def folder_of(root: Any, default: str, content: str) -> Path:
    """As `path_of`. Raises UsageError for an argument that is not a folder. `content`: what it has, for the message."""
    folder = path_of(root, default)
    if root is not None and not folder.is_dir():
        raise UsageError(f"{folder} is no folder of {content}; a value of a column is a keyword: model='lavo'")
    return folder


def usage_errors(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with errors of the user's files and settings as UsageError of one line."""

    @with_known_arguments("longhaul.")
    @functools.wraps(function)
    def checked_function(*arguments: Any, **settings: Any) -> Any:
        try:
            with in_one_line([word for word in arguments if isinstance(word, str)]):
                return function(*arguments, **settings)
        except RecordError as error:
            raise UsageError(one_line(error)) from error
        except OSError as error:
            if error.filename is None:
                raise
            file = shown(error.filename)[:LONGEST_SHOWN]
            raise UsageError(f"{file}: {(error.strerror or one_line(error)).lower()}") from error

    return checked_function
