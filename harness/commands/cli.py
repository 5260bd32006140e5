"""The command line: verbs, and every error that a typed command can cause in one line.

Nothing here imports torch: `--help` and `do=list` must answer at once.
"""

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from harness.commands.explain import explain
from harness.config import yaml_files
from harness.config.compose import keep_settings
from harness.config.masking import note_environment, note_overrides
from harness.config.overrides import key_of, rewrite
from harness.config.own_settings import check_own
from harness.config.places import CONF
from harness.config.schema import check_ranges
from harness.errors import UsageError, did_you_mean, one_line
from harness.progress import announce_torch
from harness.training.process import STOPPED, keep_compiler_cache_private

# verb -> module with `run(cfg, overrides) -> exit status`
VERBS = {
    "train": "harness.commands.train",
    "prepare": "harness.commands.prepare",
    "baselines": "harness.commands.baselines",
    "plan": "harness.commands.plan",
    "status": "harness.commands.status",
    "compare": "harness.commands.compare",
    "export": "harness.commands.export",
    "curves": "harness.commands.curves",
    "predictions": "harness.commands.predictions",
    "check": "harness.commands.check",
    "migrate": "harness.commands.migrate",
    "report": "harness.commands.report",
    "bench": "harness.commands.bench",
    "verify": "harness.commands.verify",
    "list": "harness.commands.list",
}
NARROWED = ("do", "paths", "table", "model", "task", "protocol", "budget", "seed")
# what a verb that runs no cell reads of what can be typed; it refuses the rest
READS = {
    "status": NARROWED,
    "compare": ("do", "paths", "cells"),
    "export": ("do", "paths", "cells", "trusted_packages", "model", "task", "backbone"),
    "curves": NARROWED,
    "predictions": NARROWED,
    "report": ("do", "paths", "table", "figure", "check", "format"),
    "check": ("do", "paths"),
    "migrate": ("do", "paths"),
    "list": ("do", "task"),
}
IMPORT_TORCH = ("bench", "verify")
LONGEST_MESSAGE = 2_000  # letters; a file of somebody else may have thousands of names
# these have `run_all(commands, launcher)`: a sweep's commands share cells
SWEEP_VERBS = ("train", "plan", "prepare", "baselines")


def main(hydra_main: Callable[[], Any], statuses: list[int]) -> int:
    """Run a Hydra main that adds each job's exit status to `statuses`; returns the status of the command.

    Without arguments it prints help: the default cell would train for a day.
    """
    note_environment()
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors of composition reach us; we make one line of each
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # an ascii terminal shows ? for what it lacks
    try:
        if not sys.argv[1:] or {"--help", "-h"} & set(sys.argv[1:]):
            print(help_page())
            return 0
        sys.argv[1:] = rewrite(sys.argv[1:])
        refuse_unknown_flags(sys.argv[1:])
        hydra_main()
        return max(statuses, default=0)
    except UsageError as error:
        return print_error(str(error))
    except (HydraException, OmegaConfBaseException, YAMLError, ValueError) as error:
        message = explain(error, sys.argv[1:])
        if message is None:
            raise
        return print_error(message)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return reader_left()
    except OSError as error:
        return print_error(of_file(error))


def help_page() -> str:
    """What `--help` prints. Hydra would compose the default cell first, for seconds."""
    page = yaml_files.load_config(CONF / "hydra" / "help" / "longhaul.yaml")
    return str(OmegaConf.create({"hydra": {"help": page}}).hydra.help.template)


def dispatch(cfg: DictConfig, overrides: Sequence[str]) -> int:
    """Carry out `do=` for one composed configuration. Returns the exit status; an error is printed in one line."""
    keep_settings(cfg, overrides)
    note_overrides(overrides)
    try:
        check_own(cfg, overrides)
        check_ranges(cfg)
        refuse_ignored(cfg.do, overrides)
        status = verb(cfg.do).run(cfg, overrides)
    except UsageError as error:
        return print_error(str(error), overrides)
    except (HydraException, OmegaConfBaseException, YAMLError) as error:
        return print_error(explain(error, sys.argv[1:]) or str(error), overrides)
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
    from harness.config.sweep import compose_commands

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
    return importlib.import_module(VERBS[name])


def refuse_ignored(do: str, overrides: Sequence[str]) -> None:
    """Raises UsageError for a typed key that the verb would not read."""
    reads = READS.get(do)
    ignored = [key for key in map(key_of, overrides) if reads and key.split(".")[0] not in reads]
    if ignored:
        raise UsageError(
            f"do={do} does not read {ignored[0]}=: it takes {', '.join(f'{key}=' for key in reads[1:]) or 'nothing'}"
        )


def reader_left() -> int:
    """`| head` has seen enough: what is still printed goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def of_file(error: OSError) -> str:
    """What is wrong with a file. Raises the error again if it is of none."""
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


def refuse_unknown_flags(arguments: Sequence[str]) -> None:
    """Raises UsageError for a flag that Hydra does not know, for its pickle, and for a launcher without a sweep."""
    from hydra._internal.utils import get_args_parser

    parser = get_args_parser()

    def refuse(message: str) -> None:
        raise UsageError(f"{message} (settings are typed key=value; python run.py --help)")

    parser.error = refuse  # type: ignore[method-assign]
    flags = parser.parse_args(list(arguments))
    if flags.experimental_rerun:
        refuse("--experimental-rerun reads a pickle, which can run code: type the settings of the run again")
    if not flags.multirun and any(argument.startswith("hydra/launcher=") for argument in arguments):
        raise UsageError(f"only sweeps have a launcher: python run.py -m {' '.join(arguments)}")
