"""The predictions of a cell: the score of each test example, for paired comparison, in a file beside the record.

`<record's stem>.npz` has an array (n,) for each `<evaluation>/<score>`, in the order of the split. The last part of a
key is the score (`acc`, `mse`), the rest the evaluation (`test`, `baseline/last_value`). A score that is 0 or 1, or 0
or 100 in percent, is stored as uint8 0 or 1; others are float32 in the metric's unit, rounded to a small share of their
spread with the same sum. The record has the names of each evaluation's scores and a digest of their content, so the
file of another run is recognised.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import one_line, shown
from harness.records import npz
from harness.records.files import write_bytes_atomic
from harness.records.record import RecordError
from tasks.regular_files import RefusedFileError

if TYPE_CHECKING:
    import numpy as np

STEPS = 512  # at least so many in the standard deviation of the examples
FEWEST = 64  # examples: fewer are kept as they are
LARGEST = 2**23  # multiples of a step are below it: float32 has them exactly
SMALLEST = 2.0**-126  # step
ScoreArrays = Mapping[str, "np.ndarray"]  # of one evaluation: (n,) each


def path_of(record_file: str | os.PathLike[str]) -> Path:
    """Where the predictions of a record lie, whether they are there or not."""
    return Path(record_file).with_suffix(".npz")


def stored(scores: ScoreArrays) -> dict[str, "np.ndarray"]:
    """The scores of an evaluation in the types of the file. Raises ValueError for a name with a slash."""
    if names := [name for name in scores if "/" in name]:
        raise ValueError(f"a score is called {names[0]}; names of scores have no slash")
    return {name: _compact(values) for name, values in scores.items()}


def _compact(values: "np.ndarray") -> "np.ndarray":
    import numpy as np

    for right in (1, 100):
        if np.isin(values, (0, right)).all():
            return (values == right).astype(np.uint8)
    return rounded(values.astype(np.float32))


def rounded(values: "np.ndarray") -> "np.ndarray":
    """float32 (n,) -> float32 (n,) of multiples of a step, with the same sum; equal where that is not possible.

    The error of an example is a small share of the spread between examples, which is the noise that tests compare with.
    Each number goes to a neighbouring multiple, so that no score falls below 0. The one next to the mean takes what the
    sum still lacks, at most half a step.
    """
    import numpy as np

    exact = values.astype(np.float64)
    spread = exact.std() if len(exact) >= FEWEST and np.isfinite(exact).all() else 0.0
    if not spread or (exact == np.round(exact)).all():
        return values
    step = 2.0 ** np.floor(np.log2(spread / STEPS))
    if np.abs(exact).max() / step >= LARGEST - 1 or step < SMALLEST:
        return values
    multiples = np.floor(exact / step)
    lacking = exact / step - multiples
    upwards = np.argsort(-lacking, kind="stable")[: round(lacking.sum())]
    multiples[upwards] += 1
    result = (multiples * step + 0.0).astype(np.float32)  # without negative zeros
    nearest = int(np.abs(result - exact.mean()).argmin())
    result[nearest] += exact.sum() - result.sum(dtype=np.float64)
    return result


def described(scores: ScoreArrays) -> dict[str, Any]:
    """`predictions` of a record's evaluation: names and digest of `stored` scores."""
    return {"sha256": _digest(scores), "scores": sorted(scores)}


def write(record_file: Path, evaluations: Mapping[str, ScoreArrays]) -> None:
    """Replace the predictions of a record by these `stored` scores of each evaluation."""
    arrays = {f"{name}/{score}": values for name, scores in evaluations.items() for score, values in scores.items()}
    write_bytes_atomic(path_of(record_file), npz.scores_to_bytes(arrays))


def remove(record_file: Path) -> None:
    path_of(record_file).unlink(missing_ok=True)


def read(record_file: Path, entries: Mapping[str, Any], only: str | None = None) -> dict[str, dict[str, "np.ndarray"]]:
    """{evaluation: {score: (n,)}} for all evaluations of a record that have predictions, or for `only` this one.

    `entries` is the record; only its `evaluations` are used. Raises RecordError, in one line, for a file that is
    missing, damaged or of another run.
    """
    path = path_of(record_file)
    evaluations = {name: evaluation for name, evaluation in entries["evaluations"].items() if evaluation["predictions"]}
    kept = {name: evaluation["predictions"]["scores"] for name, evaluation in evaluations.items()}
    lengths = {f"{name}/{score}": evaluations[name]["n"] or 0 for name, scores in kept.items() for score in scores}
    chosen = {name: scores for name, scores in kept.items() if only in (None, name)}
    try:
        arrays = npz.read(path, lengths, [f"{name}/{score}" for name, scores in chosen.items() for score in scores])
    except FileNotFoundError:
        raise RecordError(f"{shown(path)}: not there, but the record has a digest of it") from None
    except RefusedFileError as error:
        raise RecordError(f"{shown(path)}: {error.strerror}; move it away and run its cell again") from error
    except (OSError, ValueError) as error:
        raise RecordError(f"{shown(path)}: damaged ({one_line(error)[:120]}); run its cell again") from error
    predictions = {name: {score: arrays[f"{name}/{score}"] for score in scores} for name, scores in chosen.items()}
    for name, scores in predictions.items():
        if _digest(scores) != evaluations[name]["predictions"]["sha256"]:
            raise RecordError(f"{shown(path)}: {name} is not what the record was made from; run its cell again")
    return predictions


def _digest(scores: ScoreArrays) -> str:
    """sha256, hexadecimal, of names, types and little-endian content: the same for any version of numpy."""
    sha256 = hashlib.sha256()
    for name in sorted(scores):
        values = scores[name].astype(scores[name].dtype.newbyteorder("<"), copy=False)
        sha256.update(f"{name} {values.dtype.str} {values.shape}\n".encode())
        sha256.update(values.tobytes())
    return sha256.hexdigest()
