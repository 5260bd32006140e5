"""The scores that a search for a learning rate chooses by: those of trials on the validation split."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from harness.config.search import FAILED, signed_score
from harness.config.sweep import PlannedCell
from harness.records import record
from harness.records.record import RecordError


def score_of_trial(entries: Mapping[str, Any]) -> float:
    """The higher the better; -inf for a trial that failed."""
    if entries["status"] != "done":
        return FAILED
    point = entries["metrics"]["last" if entries["selection"]["rule"] == "last" else "best"]
    metric = entries["metric"]
    return signed_score(entries["status"], point["val"][metric["name"]], metric["higher_is_better"])


class TrialRecords:
    """Trials by their records (`harness.config.sweep.Validation`). A record is read once it is there, and then kept."""

    def __init__(self) -> None:
        self._scores: dict[str, float] = {}
        self._rates: dict[Path, float | None] = {}  # of a record's file, None for a cell that is no trial

    def __call__(self, trial: PlannedCell) -> float | None:
        """The score of a trial; None without a valid record."""
        if trial.cell.id not in self._scores:
            try:
                self._scores[trial.cell.id] = score_of_trial(record.read(trial.cell.record_path(trial.config)))
            except (RecordError, OSError):
                return None
        return self._scores[trial.cell.id]

    def rates(self, trial: PlannedCell) -> Collection[float]:
        """The learning rates of the valid records of trials of its model and seed, in any settings."""
        files = trial.cell.record_path(trial.config).parent.glob(f"{trial.cell.model}-s{trial.cell.seed}-*.json")
        return {rate for file in files if (rate := self._rate(file)) is not None}

    def _rate(self, file: Path) -> float | None:
        if file not in self._rates:
            try:
                train = record.read(file)["config"]["train"]
            except (RecordError, OSError):
                return None
            self._rates[file] = train["optimizer"]["lr"] if train.get("trial") else None
        return self._rates[file]
