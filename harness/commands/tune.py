"""hydra/sweeper=optuna: a search for settings by Optuna's TPE (Bergstra et al., 2011) on the validation loss.

    python run.py -m hydra/sweeper=optuna hydra.sweeper.trials=10 model=lavo task=lra/listops budget=smoke \\
        'train.optimizer.lr=tag(log,interval(1e-4,1e-2))' 'backbone.dropout=0.0,0.1' 'backbone.layers=range(1,4)'

A trial is a cell with `train.trial`: it is scored on the validation split alone, by what a budget's search compares
(`harness.config.search`), and leaves a record like any other.
`n_jobs` trials run at a time. The values of a trial follow from the search's seed, the number of the trial, and the
records of the trials that ended before it began. So there is no other state: the same command resumes a search that was
killed and makes the same trials as an undisturbed one, and a larger number of trials extends it.
"""

import contextlib
import hashlib
import importlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep
from omegaconf import DictConfig

from harness.commands import train
from harness.config.overrides import key_of, to_overrides
from harness.config.places import folder_below
from harness.config.schema import LARGEST_SEED
from harness.config.search import FAILED, TRIAL, Trial, trial_of
from harness.config.sweep import Command, compose_commands, expand_all
from harness.errors import UsageError
from harness.records import record
from harness.records.ownership import Ownership
from harness.records.record import RecordError
from harness.training.process import STOPPED

WORST = -1e300  # the score of a trial that failed, for Optuna, which refuses infinity
DIGITS = 4  # of a number that is drawn from an interval
NOT_SEARCHED = ("seed", "table", "figure", "do", "n_jobs", "paths", "trusted_packages")
INSTALL = "hydra/sweeper=optuna takes Optuna: pip install -e '.[search]', or longhaul[search]"


class EndedTrial(NamedTuple):
    """`params`: {key: value} as drawn. `cell`: its id."""

    params: Mapping[str, Any]
    result: Trial
    cell: str


def search(arguments: Sequence[str], trials: int, seed: int, launcher: str = "here") -> int:
    """Run this number of trials, as far as they have no record; print the best command. Returns the exit status.

    Raises UsageError for what cannot be searched, and for a search that another process runs.
    """
    optuna = imported()
    if not 0 <= seed <= LARGEST_SEED:
        raise UsageError(f"hydra.sweeper.seed={seed} is not between 0 and {LARGEST_SEED:,}")
    if launcher != "here" or trials < 1:
        raise UsageError("hydra/sweeper=optuna runs here (n_jobs=2 runs two trials at a time), for one trial or more")
    fixed, space = split(optuna, arguments)
    cfg = check_command(fixed)
    ended: list[EndedTrial] = []
    with owned(folder_of(cfg, arguments, seed)) as owner:
        while len(ended) < trials:
            owner.beat("running", step=len(ended), steps=trials, force=True)
            numbers = range(len(ended), min(trials, len(ended) + cfg.n_jobs))
            asked = [drawn(optuna, space, seed, number, ended) for number in numbers]
            commands = compose_commands([[*fixed, *words_of(params), f"{TRIAL}=true"] for params in asked])
            if (status := train.run_all(commands)) >= STOPPED:
                return status
            pairs = zip(asked, commands, strict=True)
            ended += [ended_trial(params, command, refused=status == train.REFUSED) for params, command in pairs]
    return show(ended, fixed)


@contextlib.contextmanager
def owned(folder: Path) -> Iterator[Ownership]:
    """Own a search. Raises UsageError if another process does."""
    folder.mkdir(parents=True, exist_ok=True)
    owner = Ownership(folder)
    if not owner.acquire(print):
        raise UsageError(f"another process runs this search ({folder}); the same command resumes it after that")
    try:
        yield owner
    finally:
        owner.beat("interrupted", step=0, steps=0, force=True)
        owner.release()


def drawn(optuna: Any, space: Mapping[str, Any], seed: int, number: int, ended: Sequence[EndedTrial]) -> dict[str, Any]:
    """The values of trial `number`: {key: value}."""
    seed = int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    for trial in ended:
        value = max(trial.result.score, WORST)
        study.add_trial(optuna.trial.create_trial(params=trial.params, distributions=dict(space), value=value))
    return study.ask(dict(space)).params


def ended_trial(params: Mapping[str, Any], command: Command, *, refused: bool) -> EndedTrial:
    """A trial that has ended, by its record. One that was `refused` has none, and so no score.

    Raises UsageError for another trial without a record: a later command must not draw from other scores.
    """
    (planned,) = expand_all([command]).cells
    try:
        result = trial_of(record.read(planned.cell.record_path(planned.cfg)))
    except RecordError as error:
        if not refused:
            raise UsageError(
                f"{error}: {planned.cell} has not ended; then the same command resumes the search"
            ) from error
        result = Trial(FAILED)
    return EndedTrial(params, result, planned.cell.id)


def imported() -> Any:
    """Raises UsageError if Optuna is not installed."""
    try:
        optuna = importlib.import_module("optuna")
    except ImportError as error:
        raise UsageError(INSTALL) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def split(optuna: Any, arguments: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """The typed values, and {key: distribution} of what is searched. Raises UsageError."""
    fixed, space = [], {}
    for override in OverridesParser.create().parse_overrides(list(arguments)):
        key = override.get_key_element()
        if not override.is_sweep_override():
            fixed.append(override.input_line)
        elif key_of(key).split(".")[0] in NOT_SEARCHED:
            raise UsageError(f"{key} is not searched: give it one value")
        else:
            space[key] = distribution(optuna, override)
    if not space:
        raise UsageError(
            "hydra/sweeper=optuna takes several values of a key: 'train.optimizer.lr=tag(log,interval(1e-4,1e-2))', "
            "'backbone.dropout=0.0,0.1', 'backbone.layers=range(1,4)'"
        )
    return fixed, dict(sorted(space.items()))  # the order of the words changes no draw


def distribution(optuna: Any, override: Override) -> Any:
    """Numbers of an interval (`tag(log,...)`: uniform in their logarithm), steps of a range, or a list of values."""
    value, kinds = override.value(), optuna.distributions
    log = "log" in getattr(value, "tags", ())
    try:
        if isinstance(value, IntervalSweep):
            kind = kinds.IntDistribution if isinstance(value.start, int) else kinds.FloatDistribution
            return kind(value.start, value.end, log=log)
        if isinstance(value, RangeSweep) and not value.shuffle:
            stop = value.stop - value.step if float(value.stop - value.start) % value.step == 0 else value.stop
            kind = kinds.FloatDistribution if isinstance(value.step, float) else kinds.IntDistribution
            return kind(value.start, stop, step=value.step)
        return kinds.CategoricalDistribution(list(override.sweep_string_iterator()))
    except ValueError as error:
        raise UsageError(f"{override.input_line}: {error}") from error


def check_command(fixed: Sequence[str]) -> DictConfig:
    """The configuration without what is searched. Raises UsageError for another verb than `train`, and for a table."""
    (command,) = compose_commands([list(fixed)])
    if command.cfg.do != "train" or command.cfg.table is not None:
        raise UsageError("hydra/sweeper=optuna searches the settings of one cell: leave do= and table= out")
    return command.cfg


def folder_of(cfg: DictConfig, arguments: Sequence[str], seed: int) -> Path:
    """The folder with the owner of the search of what was typed."""
    typed = sorted(word for word in arguments if key_of(word).split(".")[0] not in ("n_jobs", "paths"))
    name = hashlib.sha256("\n".join([*typed, str(seed)]).encode()).hexdigest()[:12]
    return folder_below(cfg.paths.outputs, "searches", name)


def words_of(params: Mapping[str, Any]) -> list[str]:
    """The overrides of a trial. A text is a value as it was typed."""
    texts = {key: value for key, value in params.items() if isinstance(value, str)}
    rounded = {key: shortened(value) for key, value in params.items() if key not in texts}
    return [*(f"{key}={value}" for key, value in texts.items()), *to_overrides(rounded)]


def shortened(value: float) -> float:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def show(trials: Sequence[EndedTrial], fixed: Sequence[str]) -> int:
    """Print the best trial and its command. Exit status 1 if no trial has a score."""
    scored = [trial for trial in trials if trial.result.score > FAILED]
    if not scored:
        print(f"search: none of {len(trials)} trials has a score; the lines above say why")
        return 1
    best = max(scored, key=lambda trial: trial.result.score)
    chosen = ", ".join(f"{key}={shortened(value)}" for key, value in best.params.items())
    print(f"search: {len(trials)} trials, {len(trials) - len(scored)} without a score")
    score = f"val {best.result.by} {best.result.sign * best.result.score:.6g}"
    print(f"best: {score} · {chosen} · cell {best.cell[:8]}")
    print(f"python run.py {shlex.join([*fixed, *words_of(best.params)])}")
    return 0
