"""A cell that is trained here, and what it left behind."""

import torch

from harness.config.build import build
from harness.config.cell import cell_of
from harness.config.compose import compose
from harness.records import record
from harness.records.run_directory import RunDirectory
from harness.training.run_cell import run_cell
from tests.helpers.cells import request_of


def trained(*typed: str):
    """The configuration, the path of the record, its entries, and task and model with the weights that were tested."""
    cfg = compose(list(typed))
    result = run_cell(request_of(cfg))
    assert result.state == "done", result.detail
    cell, built = cell_of(cfg), build(cfg)
    run, path = RunDirectory(cell.folder(cfg)), cell.record_path(cfg)
    by_best = run.best.is_file()
    weights = torch.load(run.best if by_best else run.last, weights_only=by_best)
    weights = weights if by_best else weights["state_dict"]
    built.model.eval().load_state_dict({key.removeprefix("model."): value for key, value in weights.items()})
    return cfg, path, record.read(path), built
