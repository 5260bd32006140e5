"""The simple predictors in a paper's column: fitted by do=baselines at the paper's budget, to complete data.

A file of `harness.records.baselines` belongs to a column if its key is that of the column's recipe. So no cell has to
be run there, and no data are read. Data are complete if the task says that they are the full set, or if the card of the
task names them by their fingerprint.
"""

import functools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from harness.config.cell import identifying_config
from harness.config.compose import compose, search_path
from harness.records import baselines
from harness.records.collect import Cells, say_left_out_once
from harness.records.data_cards import complete_name
from harness.records.record import RecordError
from harness.report.spec.table import TableSpec


@dataclass(frozen=True)
class PaperData:
    """`metric`: of the column. `name`: of the data, for pages. `file`: the content of the file of baselines.

    `seeds`: of the table. A predictor has the same score for each, so that a mean over columns may have runs in some.
    """

    task: str
    metric: str
    name: str
    file: Mapping[str, Any]
    seeds: tuple[int, ...]

    @property
    def sizes(self) -> Mapping[str, int]:
        """Examples of each split."""
        return self.file["data"]["sizes"]

    @property
    def cells(self) -> Cells:
        """A frame in place of cells, which has the predictors of the file and no run."""
        cell = {"id": "", "fingerprint": self.file["fingerprint"], "evaluations": {}, "baselines": self.file}
        return pd.DataFrame([cell | {"seed": seed} for seed in self.seeds])


def paper_data(root: str | os.PathLike[str], spec: TableSpec, column: str) -> PaperData | None:
    """Of a column of one protocol's table; None without predictors there. `root`: the folder of the records.

    The file with most test examples counts, and of these the one with most training examples. A file that cannot be
    read is named and left out.
    """
    of_column = spec.columns[column]
    row = next((row for row in spec.rows if spec.has(row, column)), None)
    if of_column.metric is None or of_column.task is None or row is None:
        return None
    files = list(_complete(root, of_column.task, of_column.metric, spec.seeds))
    if not files:
        return None
    config = _config(spec.rows[row].model, spec.paper_recipe(row, column), tuple(search_path()))
    of_recipe = [data for data in files if data.file["key"] == baselines.key_of(config, data.file["fingerprint"])]
    return max(of_recipe, key=lambda data: (data.sizes["test"], data.sizes["train"]), default=None)


@functools.cache
def _config(model: str, recipe: tuple[str, ...], search: tuple[str, ...]) -> dict[str, Any]:
    """`search`: the folders from which the recipe is composed."""
    return identifying_config(compose((f"model={model}", *recipe), search, shared=recipe))


def _complete(root: str | os.PathLike[str], task: str, metric: str, seeds: tuple[int, ...]) -> Iterator[PaperData]:
    """The files of a task whose data are complete."""
    for path in baselines.files_of(root, task):
        try:
            file = baselines.read_checked(path)
        except RecordError as error:
            say_left_out_once(str(error))
            continue
        data = file.get("data")
        name = complete_name(task, data["source"], data["fingerprint"]) if data else None
        if name is not None:
            yield PaperData(task, metric, name, file, seeds)
