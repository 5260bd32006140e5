"""The results that a search for a learning rate chooses by: those of trials on the validation split."""

from harness.config.search import Trial, trial_of
from harness.config.sweep import PlannedCell
from harness.records import record
from harness.records.record import RecordError


class TrialRecords:
    """Trials by their records (`harness.config.sweep.Validation`). A record is read once it is there, and then kept."""

    def __init__(self) -> None:
        self._results: dict[str, Trial] = {}

    def __call__(self, trial: PlannedCell) -> Trial | None:
        """The result of a trial; None without a valid record."""
        if trial.cell.id not in self._results:
            try:
                self._results[trial.cell.id] = trial_of(record.read(trial.cell.record_path(trial.config)))
            except (RecordError, OSError):
                return None
        return self._results[trial.cell.id]
