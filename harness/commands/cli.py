"""The door: verbs, and every error that typing can cause turned into one line.

Nothing here imports torch: `--help` and `do=list` must answer at once.
"""

import fnmatch
import importlib
import os
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.config.compose import NAMED, compose, options, recipes, search_path, with_protocol
from harness.errors import UsageError, did_you_mean, one_line
from harness.training.signals import STOPPED

# verb -> module with `run(cfg, overrides) -> exit status`
VERBS = {
    "train": "harness.commands.train",
    "prepare": "harness.commands.prepare",
    "plan": "harness.commands.plan",
    "status": "harness.commands.status",
    "report": "harness.commands.report",
    "bench": "harness.commands.bench",
    "verify": "harness.commands.verify",
    "list": "harness.commands.list",
}
TOGETHER = ("train", "plan", "prepare")  # these have `run_all(commands, ...)`: a sweep's commands share cells


def dispatch(cfg: DictConfig, overrides: Sequence[str]) -> int:
    """Carry out `do=` for one composed configuration. Returns the exit status; says what is wrong in one line."""
    try:
        status = verb(cfg.do).run(cfg, overrides)
    except UsageError as error:
        return complain(str(error), overrides)
    except (HydraException, OmegaConfBaseException) as error:
        return complain(translate(error, sys.argv[1:]) or str(error), overrides)
    if status >= STOPPED or (status and cfg.fail_fast):
        raise SystemExit(status)  # a sweep ends here; its other commands are not begun
    return status


def verb(name: str) -> Any:
    if name not in VERBS:
        raise UsageError(f"there is no do={name}: {did_you_mean(name, VERBS)}")
    return importlib.import_module(VERBS[name])


def dispatch_all(swept: Sequence[Sequence[str]], place: str) -> int:
    """Carry out the commands of a sweep. `place`: who runs its cells. Returns the exit status of all.

    Raises UsageError and Hydra's errors for what no command can be composed of.
    """
    from harness.config.sweep import Command

    composed: dict[tuple[str, ...], DictConfig] = {}
    commands = []
    for overrides in swept:
        # commands that differ in their seed are composed once
        rest = tuple(word for word in overrides if not word.startswith("seed="))
        if rest not in composed:
            composed[rest] = compose(rest, search_path())
        cfg = composed[rest].copy()
        for word in overrides:
            if word.startswith("seed="):
                OmegaConf.update(cfg, "seed", word.partition("=")[2])
        commands.append(Command(cfg, tuple(overrides)))
    do = commands[0].cfg.do
    if all(command.cfg.do == do for command in commands) and do in TOGETHER:
        return verb(do).run_all(commands, place)
    if place != "here":
        raise UsageError(f"do={do} runs here: leave hydra/launcher= out")
    statuses = [dispatch(command.cfg, command.overrides) for command in commands]
    if len(statuses) > 1:
        print(f"{len(statuses)} commands, {len(statuses) - statuses.count(0)} of them with an error")
    return max(statuses)


def door(main: Callable[[], Any], statuses: list[int]) -> int:
    """Run a Hydra main that adds each job's exit status to `statuses`; returns the status of the whole command."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors of composition reach us; we make one line of each
    arguments = sys.argv[1:]
    try:
        sys.argv[1:] = arguments = lists_of_bench(globbed(flags_first(arguments)))
        folder = refuse_unknown_flags(arguments).config_dir
        sys.argv[1:] = swept_together(with_protocol(arguments, [folder] if folder else []))
        main()
        return max(statuses, default=0)
    except UsageError as error:
        return complain(str(error))
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        message = translate(error, arguments)
        if message is None:
            raise
        return complain(message)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


# do=bench compares what its lists name within one run: they are no sweep
LISTS = {"model": "bench.models", "lengths": "bench.lengths", "what": "bench.what"}


def lists_of_bench(arguments: Sequence[str]) -> list[str]:
    """`do=bench model=a,b lengths=1,2` -> `do=bench model=a bench.models=[a,b] bench.lengths=[1,2]`; else as it is."""
    if "do=bench" not in arguments:
        return list(arguments)
    found = []
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if equals and key in LISTS:
            found.append(f"{LISTS[key]}=[{value.strip('[]')}]")
        if not equals or key not in LISTS or key == "model":
            found.append(argument.split(",")[0] if key == "model" else argument)  # model.key=value is the first one's
    return found


def flags_first(arguments: Sequence[str]) -> list[str]:
    """`model=a,b -m seed=1`: wherever -m is typed, Hydra wants it before the settings."""
    swept = [argument for argument in arguments if argument in ("-m", "--multirun")]
    return [*swept[:1], *(argument for argument in arguments if argument not in ("-m", "--multirun"))]


def swept_together(arguments: Sequence[str]) -> list[str]:
    """`-m task=a protocol=b,c` -> `-m task=choice(a) protocol=b,c`, and the other way round.

    Hydra composes what is not swept once on its own, and a task without its protocol may be no composition.
    """
    typed = {key: value for key, equals, value in (word.partition("=") for word in arguments) if equals}
    pair = [key for key in ("task", "protocol") if key in typed]
    several = [key for key in pair if "," in typed[key] or typed[key].startswith("choice(")]
    if ("-m" not in arguments and "--multirun" not in arguments) or len(pair) < 2 or len(several) != 1:
        return list(arguments)
    (alone,) = set(pair) - set(several)
    return [f"{alone}=choice({typed[alone]})" if word.startswith(f"{alone}=") else word for word in arguments]


def globbed(arguments: Sequence[str]) -> list[str]:
    """`task=lra/*` -> `task=lra/image,lra/listops,...`: the names of the group that fit. Raises UsageError for none."""
    found = []
    for argument in arguments:
        group, equals, value = argument.partition("=")
        # logger=[csv,tensorboard] is Hydra's list of several at once
        if not equals or group not in NAMED or value.startswith("[") or not set(value) & set("*?["):
            found.append(argument)
            continue
        names = [name for name, _ in options(group)]
        parts = [value[5:-1]] if value.startswith("glob(") else value.split(",")
        fitting = []
        for part in parts:
            if part in names:
                fitting.append(part)
                continue
            fit = [name for name in fnmatch.filter(names, part) if name not in ("all", "custom")]
            if not fit:
                raise UsageError(f"no {group} fits {part}: there is {', '.join(names)}")
            fitting += fit
        found.append(f"{group}={','.join(dict.fromkeys(fitting))}")
    return found


def complain(message: str, overrides: Sequence[str] = ()) -> int:
    """One line. In a sweep it also says which of its commands is meant."""
    swept = HydraConfig.initialized() and HydraConfig.get().mode is RunMode.MULTIRUN
    which = f" [{' '.join(overrides)}]" if swept and overrides else ""
    print(f"error: {one_line(message)}{which}", file=sys.stderr)
    return 2


def refuse_unknown_flags(arguments: Sequence[str]) -> Namespace:
    """What the flags say. Raises UsageError."""
    from hydra._internal.utils import get_args_parser

    parser = get_args_parser()

    def refuse(message: str) -> None:
        raise UsageError(f"{message} (settings are typed key=value; python run.py --help)")

    parser.error = refuse  # type: ignore[method-assign]
    flags = parser.parse_args(list(arguments))
    if not flags.multirun and any(argument.startswith("hydra/launcher=") for argument in arguments):
        raise UsageError(f"only sweeps have a launcher: python run.py -m {' '.join(arguments)}")
    return flags


def translate(error: BaseException, arguments: Sequence[str]) -> str | None:
    """One line for an error of composition, or None for one that is not the user's."""
    text, cause = str(error), error.__cause__
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


def first_line(error: BaseException) -> str:
    return one_line(str(error).split("\n")[0])


def unknown_option(path: str, text: str) -> str:
    """`model/lavoo`, `protocol/google/lm/pg19`, `task/lra/listop`, `hydra/launcher/slrum`."""
    for group in NAMED:
        if path.startswith(group + "/"):
            name = path[len(group) + 1 :]
            known = [option for option, _ in options(group)]
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
    """A key outside the schema. Compared with the keys of its own node first, then with all of them."""
    from harness.config.cell import flatten

    values = OmegaConf.to_container(compose(), enum_to_str=True)
    known = {name.rpartition(".")[0] for name in flatten(values)} | set(flatten(values)) | set(NAMED)
    parent = key.rpartition(".")[0]
    siblings = {name for name in known if name.rpartition(".")[0] == parent} if parent else known
    return f"there is no key '{key}': {did_you_mean(key, siblings or known)} (python run.py --cfg job shows them all)"
