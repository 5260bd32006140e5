"""The command line: verbs, and every error that a typed command can cause in one line.

Nothing here imports torch: `--help` and `do=list` must answer at once.
"""

import errno
import importlib
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from harness.commands import VERBS
from harness.commands.mistakes import check_typed, in_one_line
from harness.commands.rewrite import MULTIRUN, rewrite
from harness.config import option_files, yaml_files
from harness.config.compose import complete, search_path
from harness.config.overrides import key_of
from harness.config.places import CONF
from harness.config.sweep import Command, compose_commands
from harness.errors import UsageError, did_you_mean, one_line, shown
from harness.masking import note_environment, note_overrides
from harness.progress import announce_torch
from harness.records.provenance import version
from harness.training.process import STOPPED, keep_compiler_cache_private

IMPORT_TORCH = ("bench", "verify")
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
LONGEST_MESSAGE = 2_000  # letters; a file of somebody else may have thousands of names
SHELLS = ("bash", "fish", "zsh")  # that Hydra completes
# these have `run_all(commands, launcher) -> exit status`, as the commands of a sweep share cells; the other verbs have
# `run(cfg, overrides)`
SWEEP_VERBS = ("train", "plan", "prepare", "baselines")


def main(hydra_main: Callable[[], Any], statuses: list[int]) -> int:
    """Run a Hydra main that adds each job's exit status to `statuses`; returns the status of the command.

    Without arguments it prints help: the default cell would train for a day. Help and the list of names read no
    configuration, so none is composed for them.
    """
    note_environment()
    logging.raiseExceptions = False  # `--info | head`: a handler's reader may leave
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors of composition reach us; we make one line of each
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # an ascii terminal shows ? for what it lacks
    try:
        if not set(sys.argv[1:]) - set(MULTIRUN) or {"--help", "-h"} & set(sys.argv[1:]):
            # Hydra would compose the default cell first, for seconds
            page = yaml_files.load_config(CONF / "hydra" / "help" / "longhaul.yaml")
            print(OmegaConf.create({"hydra": {"help": page}}).hydra.help.template)
            return 0
        if "--version" in sys.argv[1:]:
            print(f"longhaul {version()}")
            return 0
        if sys.argv[1:] == ["do=list"]:
            verb("list").print_names()
            return 0
        sys.argv[1:] = rewrite(sys.argv[1:])
        with in_one_line(sys.argv[1:]):
            settings, folders = settings_and_folders(sys.argv[1:])
        check_typed(settings, folders)
        sys.argv[1:] = without_folders(sys.argv[1:])
        with option_files.added(folders), in_one_line(sys.argv[1:]):
            hydra_main()
        return max(statuses, default=0)
    except UsageError as error:
        return print_error(str(error))
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return reader_left()
    except OSError as error:
        return print_error(of_file(error))


def dispatch(cfg: DictConfig, overrides: Sequence[str]) -> int:
    """Carry out `do=` for one composed configuration. Returns the exit status; an error is printed in one line."""
    note_overrides(overrides)
    try:
        check_typed(overrides, search_path())  # `main` checks them before they are composed; other callers do not
        complete(cfg, overrides, search_path())
        with in_one_line(sys.argv[1:]):
            module, command = verb(cfg.do), Command(cfg, tuple(overrides))
            status = module.run_all([command]) if cfg.do in SWEEP_VERBS else module.run(cfg, overrides)
    except UsageError as error:
        return print_error(str(error), overrides)
    except BrokenPipeError:
        return reader_left()
    except OSError as error:
        return print_error(of_file(error), overrides)
    if status >= STOPPED or (status and cfg.fail_fast):
        raise SystemExit(status)  # a sweep ends here; its other commands are not begun
    return status


def dispatch_all(swept: Sequence[Sequence[str]], launcher: str) -> int:
    """Carry out the commands of a sweep. `launcher`: where its cells run. Returns the highest exit status.

    Raises UsageError, and Hydra's errors for overrides that do not compose.
    """
    commands = compose_commands(swept)
    do = commands[0].cfg.do
    if all(command.cfg.do == do for command in commands) and do in SWEEP_VERBS:
        return verb(do).run_all(commands, launcher)
    if launcher != "here":
        raise UsageError(f"do={do} runs here: leave hydra/launcher= out")
    statuses = [dispatch(command.cfg, command.overrides) for command in commands]
    if len(statuses) > 1:
        print(f"{len(statuses)} commands, {len(statuses) - statuses.count(0)} of them with an error")
    return max(statuses)


def verb(name: str) -> Any:
    if name not in VERBS:
        raise UsageError(f"there is no do={name}: {did_you_mean(name, VERBS)}")
    if name in IMPORT_TORCH:
        announce_torch()
        keep_compiler_cache_private()
    return importlib.import_module(f"harness.commands.{name}")


def reader_left() -> int:
    """`| head` has seen enough: what is still printed goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def of_file(error: OSError) -> str:
    """What is wrong with a file. Raises the error again if it is of none."""
    if error.filename is None and error.errno in NO_ROOM:  # only the output has no name
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return f"the output cannot be written: {error.strerror.lower()}; finished cells keep their records"
    if error.filename is None:
        raise error
    return f"{error.filename}: {(error.strerror or str(error)).lower()}; paths.<name>= moves a folder"


def print_error(message: str, overrides: Sequence[str] = ()) -> int:
    """One line; in a sweep it names the command, too."""
    sweep = HydraConfig.initialized() and HydraConfig.get().mode is RunMode.MULTIRUN
    command = f" [{' '.join(overrides)}]" if sweep and overrides else ""
    line = one_line(message)
    shown = line if len(line) <= LONGEST_MESSAGE else f"{line[:LONGEST_MESSAGE]} ..."
    print(f"error: {shown}{command}", file=sys.stderr)
    return 2


def settings_and_folders(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The typed settings and the folders of `--config-dir` and `hydra.searchpath`, which Hydra does not read itself.

    Raises UsageError for a flag that Hydra lacks, its pickle, another `conf`, and a launcher without a sweep.
    """
    from hydra._internal.utils import get_args_parser

    parser = get_args_parser()
    parser.allow_abbrev = False

    def refuse(message: str) -> None:
        if message.startswith("unrecognized arguments:"):  # argparse lists every word behind the flag as well
            words = message.split()
            message = " ".join([*words[:2], *(word for word in words[2:] if word.startswith("-"))])
        raise UsageError(f"{message} (settings are typed key=value; python run.py --help)")

    parser.error = refuse  # type: ignore[method-assign]
    flags = parser.parse_args(list(arguments))
    if flags.shell_completion and "COMP_LINE" not in os.environ:
        shells = [word.partition("install=")[2] for word in arguments if "install=" in word]
        if not shells or not {*shells} <= {*SHELLS}:
            names = ", ".join(SHELLS)
            refuse(f"python run.py -sc install=bash makes a shell complete names ({names}); query= is for the shell")
    if (flags.resolve or flags.package) and not flags.cfg:
        refuse("--resolve and --package belong to --cfg job")
    if flags.multirun and (flags.cfg or flags.info):
        refuse("--cfg and --info show one command: leave -m out")
    if flags.experimental_rerun:
        refuse("--experimental-rerun reads a pickle, which can run code: type the settings of the run again")
    for kind in ("launcher", "sweeper"):
        if not flags.multirun and any(argument.startswith(f"hydra/{kind}=") for argument in arguments):
            raise UsageError(f"only sweeps have a {kind}: python run.py -m {' '.join(arguments)}")
    if flags.config_path or flags.config_name:
        refuse("--config-path and --config-name: conf/config.yaml is always read; --config-dir adds a folder")
    folders = [flags.config_dir] if flags.config_dir else []
    for word in filter(is_search_path, flags.overrides):
        values = OverridesParser.create().parse_overrides([word])[0].value()
        folders += [str(value).removeprefix("file://") for value in (values if isinstance(values, list) else [values])]
    if missing := [folder for folder in folders if not os.path.isdir(folder)]:
        raise UsageError(f"{shown(missing[0])}: no such configuration folder")
    settings = [word for word in flags.overrides if not is_search_path(word)]
    return settings, [os.path.abspath(folder) for folder in folders]


def is_search_path(word: str) -> bool:
    return key_of(word) == "hydra.searchpath"


def without_folders(arguments: Sequence[str]) -> list[str]:
    """The arguments without `--config-dir FOLDER` and `hydra.searchpath=`."""
    pairs = zip(["", *arguments], arguments, strict=False)
    kept = [word for before, word in pairs if not {before, word.partition("=")[0]} & {"--config-dir", "-cd"}]
    return [word for word in kept if not is_search_path(word)]
