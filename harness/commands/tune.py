"""hydra/sweeper=optuna: a search for settings by Optuna's TPE (Bergstra et al., 2011) on the validation score.

    python run.py -m hydra/sweeper=optuna hydra.sweeper.trials=10 model=lavo task=lra/listops budget=smoke \\
        'train.optimizer.lr=tag(log,interval(1e-4,1e-2))' 'backbone.dropout=0.0,0.1' 'backbone.layers=range(1,4)'

A trial is a cell with `train.trial`: it is scored on the validation split alone and leaves a record like any other.
`n_jobs` trials run at a time. The study is a journal below `<paths.outputs>/searches`, named after what was typed: the
same command goes on with it, also after a kill, and with more trials extends it.
"""

import contextlib
import hashlib
import importlib
import math
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep
from omegaconf import DictConfig

from harness.commands import train
from harness.config.cell import cell_of
from harness.config.overrides import key_of, to_overrides
from harness.config.places import folder_below
from harness.config.schema import LARGEST_SEED
from harness.config.search import FAILED, TRIAL
from harness.config.sweep import Command, compose_commands, expand_all
from harness.errors import UsageError, one_line, shown
from harness.records import record
from harness.records.record import RecordError
from harness.records.validation import score_of_trial
from harness.training.process import STOPPED
from tasks.regular_files import require_regular

WORST = -1e300  # the score of a trial that failed; the journal holds no infinity
DIGITS = 4  # of a number that is drawn from an interval
NOT_SEARCHED = ("seed", "table", "figure", "do", "n_jobs", "paths", "trusted_packages")
MOST_BYTES = 1 << 26  # of a journal
LOCK = ".lock"  # Optuna's, beside it
CELL, METRIC = "cell", "metric"  # attributes of a trial in the journal
INSTALL = "hydra/sweeper=optuna takes Optuna: pip install -e '.[search]', or longhaul[search]"


def search(arguments: Sequence[str], trials: int, seed: int, launcher: str = "here") -> int:
    """Run trials until the study has this number of them; print the best command. Returns the exit status.

    Raises UsageError for what cannot be searched.
    """
    optuna = imported()
    if not 0 <= seed <= LARGEST_SEED:
        raise UsageError(f"hydra.sweeper.seed={seed} is not between 0 and {LARGEST_SEED:,}")
    if launcher != "here" or trials < 1:
        raise UsageError("hydra/sweeper=optuna runs here (n_jobs=2 runs two trials at a time), for one trial or more")
    fixed, space = split(optuna, arguments)
    cfg = check_command(fixed)
    file = journal_of(cfg, arguments, seed)
    with reading(file):
        study = study_of(optuna, file, space, seed)
    print(f"search: {len(finished(study))} trials so far · {shown(file)}")
    while (left := trials - len(finished(study))) > 0:
        with reading(file):
            asked = [study.ask(space) for _ in range(min(left, cfg.n_jobs))]
            check_trials(asked, space)
        chosen = [[*fixed, *words_of(trial.params)] for trial in asked]
        commands = compose_commands([[*words, f"{TRIAL}=true"] for words in chosen])
        if (status := train.run_all(commands)) >= STOPPED:
            return status  # the trials stay open; the same command goes on with them
        for trial, command in zip(asked, commands, strict=True):
            tell(study, trial, command)
    return show(study, fixed)


def imported() -> Any:
    """Raises UsageError if Optuna is not installed."""
    try:
        optuna = importlib.import_module("optuna")
        importlib.import_module("optuna.storages.journal")
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
    return fixed, space


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


def journal_of(cfg: DictConfig, arguments: Sequence[str], seed: int) -> Path:
    """The file of the study of what was typed. Raises UsageError for a link or another kind of file there."""
    typed = sorted(word for word in arguments if key_of(word).split(".")[0] not in ("n_jobs", "paths"))
    with contextlib.suppress(UsageError):  # a key that is searched may have no other value
        typed.append(cell_of(cfg).id)  # with the content of the user's files
    name = hashlib.sha256("\n".join([*typed, str(seed)]).encode()).hexdigest()[:12]
    file = folder_below(cfg.paths.outputs, "searches") / f"{name}.journal"
    file.parent.mkdir(parents=True, exist_ok=True)
    for path in (file, Path(f"{file}{LOCK}")):
        if os.path.lexists(path):
            with reading(path):
                require_regular(path, MOST_BYTES)
    return file


@contextlib.contextmanager
def reading(file: Path) -> Iterator[None]:
    """Turns what Optuna raises for a journal that it did not write into a UsageError."""
    try:
        yield
    except Exception as error:  # of many kinds: Optuna reads a journal as it wrote it
        reason = getattr(error, "strerror", None) or one_line(error)[:120] or type(error).__name__
        raise UsageError(f"{shown(file)}: no journal of this search ({reason}); move it away") from error


def study_of(optuna: Any, file: Path, space: Mapping[str, Any], seed: int) -> Any:
    """The study in a journal, new or as far as it is. Trials that a kill left open are asked again.

    Raises ValueError for trials of another search, or what Optuna raises.
    """
    journal = optuna.storages.journal
    storage = optuna.storages.JournalStorage(
        journal.JournalFileBackend(str(file), lock_obj=journal.JournalFileOpenLock(str(file)))
    )
    study = optuna.create_study(study_name=file.stem, storage=storage, direction="maximize", load_if_exists=True)
    if len(study.directions) > 1:
        raise ValueError("it has several objectives")
    check_trials(study.trials, space)
    open_trials = [trial for trial in study.trials if trial.state.name == "RUNNING"]
    for trial in open_trials:
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        study.enqueue_trial(trial.params)
    # draws follow from the seed and the number of trials, so that a study goes on and does not repeat itself
    study.sampler = optuna.samplers.TPESampler(seed=seed + len(study.trials))
    return study


def check_trials(trials: Iterable[Any], space: Mapping[str, Any]) -> None:
    """Raises ValueError for a trial that is not of this search: its journal may come from somebody else."""
    for trial in trials:
        is_drawn = all(is_in(value, trial.distributions[key], space.get(key)) for key, value in trial.params.items())
        is_scored = not is_complete(trial) or (
            trial.params.keys() == space.keys()
            and math.isfinite(trial.value)
            and all(isinstance(trial.user_attrs.get(name), str) for name in (CELL, METRIC))
        )
        if not is_drawn or not is_scored:
            raise ValueError(f"trial {trial.number} is not one of it")


def is_in(value: Any, distribution: Any, searched: Any) -> bool:
    """Whether a value is one of those that are searched. Optuna itself takes any number of a journal."""
    low, high = getattr(searched, "low", None), getattr(searched, "high", None)
    return distribution == searched and (low is None or low <= value <= high)


def is_complete(trial: Any) -> bool:
    return hasattr(trial, "state") and trial.state.name == "COMPLETE"


def finished(study: Any) -> list[Any]:
    """The trials that have a score or failed; one that a kill left open has neither."""
    return [trial for trial in study.trials if is_complete(trial)]


def words_of(params: Mapping[str, Any]) -> list[str]:
    """The overrides of a trial. A text is a value as it was typed."""
    texts = {key: value for key, value in params.items() if isinstance(value, str)}
    rounded = {key: shortened(value) for key, value in params.items() if key not in texts}
    return [*(f"{key}={value}" for key, value in texts.items()), *to_overrides(rounded)]


def shortened(value: float) -> float:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def tell(study: Any, trial: Any, command: Command) -> None:
    """The score of a trial's record; of a trial that failed or was refused, the least."""
    (planned,) = expand_all([command]).cells
    try:
        entries = record.read(planned.cell.record_path(planned.cfg))
        score, metric = score_of_trial(entries), entries["metric"]["name"]
    except (RecordError, OSError):
        score, metric = FAILED, ""
    trial.set_user_attr(CELL, planned.cell.id)
    trial.set_user_attr(METRIC, metric)
    study.tell(trial, score if math.isfinite(score) else WORST)


def show(study: Any, fixed: Sequence[str]) -> int:
    """Print the best trial and its command. Exit status 1 if no trial has a score."""
    scored = [trial for trial in finished(study) if trial.value > WORST]
    if not scored:
        print(f"search: none of {len(finished(study))} trials has a score; the lines above say why")
        return 1
    best = max(scored, key=lambda trial: trial.value)
    chosen = ", ".join(f"{key}={value:.{DIGITS}g}" if isinstance(value, float) else f"{key}={value}"
                       for key, value in best.params.items())  # fmt: skip
    print(f"search: {len(finished(study))} trials, {len(finished(study)) - len(scored)} without a score")
    score = f"val {one_line(best.user_attrs[METRIC])[:80]} {abs(best.value):.6g}"
    print(f"best: {score} · {chosen} · cell {one_line(best.user_attrs[CELL])[:8]}")
    print(f"python run.py {shlex.join([*fixed, *words_of(best.params)])}")
    return 0
