"""do=bench: time and memory of layers or whole models against the length, beside softmax attention in the same run.

    python run.py do=bench model=lavo,latte lengths=1024,4096,16384 what=forward,train,decode
    python run.py do=bench task=lra/text protocol=google model=linformer what=train lengths=1024,2048
    python run.py do=bench task=lm/pg19 protocol=lavo model=lavo what=generate mode=incremental,recompute lengths=1024
    python run.py do=bench table=luna/t2

It measures one layer, with `bench.layers=2` a language model of two layers, with a typed task the model of its recipe,
on random input. `forward` runs without gradients; `train` is forward and backward, or the whole step of a recipe;
`decode` is one more token after so many; `generate` writes a text. A table or figure sets what it measures. The
measurements are written to `<paths.bench>/<name>.json`; do=report renders their pages and pictures.
"""

from collections.abc import Sequence

from omegaconf import DictConfig

from harness.bench.asked import asked_for, measure_asked
from harness.bench.command import keep, measure, require_points


def run(cfg: DictConfig, overrides: Sequence[str]) -> int:
    if asked := asked_for(overrides):
        return measure_asked(cfg, overrides, *asked)
    measured = measure(cfg, overrides)
    require_points(measured)
    keep(measured, cfg)
    return 0
