"""A cell that another cell depends on, and the weights that it hands over.

With `depends_on: [{cell: "<overrides>", weights: [embedding, layers]}]` all parameters below these prefixes start from
the chosen weights of that cell.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.config.validation import StrictModel, TupleOf
from harness.errors import UsageError
from harness.records import record
from harness.records.files import DamagedError
from harness.records.run_directory import RunDirectory

if TYPE_CHECKING:
    from torch import nn

MODULE = "model."  # prefix of the names of parameters in a checkpoint


class Dependency(StrictModel):
    """A cell to be done first. `weights`: prefixes of the parameters to take from it."""

    id: str
    name: str
    record: str  # path
    run_dir: str  # path
    weights: TupleOf[str] = ()

    @property
    def weights_path(self) -> Path:
        """The file with the chosen weights of the cell, which must be done. The file may be gone."""
        return chosen_weights(RunDirectory(Path(self.run_dir)), record.read(self.record))


def chosen_weights(run_dir: RunDirectory, entries: dict[str, Any]) -> Path:
    """The file in a run directory with the weights that were tested."""
    return run_dir.last if entries["selection"]["rule"] == "last" else run_dir.best


def read_chosen(path: Path, cell: str) -> dict[str, Any]:
    """The weights in the file of `chosen_weights`, by the model's own names. Raises DamagedError."""
    from harness.training.checkpoints.checkpoint import read_sealed

    saved = read_sealed(path, cell)
    return {name.removeprefix(MODULE): tensor for name, tensor in saved.get("state_dict", saved).items()}


def load_weights(model: "nn.Module", dependency: Dependency) -> str:
    """Replace the parameters and buffers below the prefixes; returns the sha256 of all weights of the dependency.

    Raises UsageError for weights other than those of its record, and for names or shapes that do not agree.
    """
    from harness.training.checkpoints.checkpoint import state_sha256

    path = dependency.weights_path
    again = "remove it, and the same command trains them again"
    try:
        given = read_chosen(path, dependency.id)
    except DamagedError as error:
        raise UsageError(f"depends_on: {error}; {again}") from error
    sha256 = state_sha256(given)
    if sha256 != record.read(dependency.record)["tested_weights_sha256"]:
        raise UsageError(
            f"depends_on: {path} does not hold the weights that {dependency.record} was tested with; {again}"
        )
    state = model.state_dict()
    require_prefixes(state, dependency.weights)
    names, given_names = below(state, dependency.weights), below(given, dependency.weights)
    if different := sorted(set(names) ^ set(given_names)):
        where = "this model" if different[0] in given_names else f"the weights of {dependency.name}"
        raise UsageError(f"depends_on: {different[0]} is missing in {where}")
    for name in names:
        if state[name].shape != given[name].shape:
            shapes = f"{tuple(state[name].shape)} here, {tuple(given[name].shape)} in {dependency.name}"
            raise UsageError(f"depends_on: {name} has the shape {shapes}")
    model.load_state_dict({name: given[name] for name in names}, strict=False)
    return sha256


def below(state: dict[str, Any], prefixes: Sequence[str]) -> list[str]:
    """The names that are one of the prefixes or begin with one and a dot."""
    return [name for name in state if any(f"{name}.".startswith(f"{prefix}.") for prefix in prefixes)]


def require_prefixes(state: dict[str, Any], prefixes: Sequence[str]) -> None:
    """Raises UsageError for a prefix without a parameter. `state`: the model's weights by name."""
    for prefix in prefixes:
        if not below(state, [prefix]):
            parts = ", ".join(sorted({name.partition(".")[0] for name in state}))
            raise UsageError(f"depends_on: the model has no parameter below '{prefix}': there is: {parts}")
