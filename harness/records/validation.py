"""The scores that a search for a learning rate chooses by: those of trials on the validation split."""

from collections.abc import Callable, Mapping
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


def reader() -> Callable[[PlannedCell], float | None]:
    """Reads the score of a trial; None without a valid record. A record is read once it is there, and then kept."""
    scores: dict[str, float] = {}

    def read(trial: PlannedCell) -> float | None:
        if trial.cell.id not in scores:
            try:
                scores[trial.cell.id] = score_of_trial(record.read(trial.cell.record_path(trial.cfg)))
            except (RecordError, OSError):
                return None
        return scores[trial.cell.id]

    return read
