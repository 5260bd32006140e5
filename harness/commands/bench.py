"""do=bench: time and memory against the length, of attention layers or whole models, each beside softmax attention in
the same run.

    python run.py do=bench model=lavo,latte lengths=1024,4096,16384 what=forward,train,decode
    python run.py do=bench task=lra/text protocol=google model=linformer what=train lengths=1024,2048
    python run.py do=bench task=lm/pg19 protocol=lavo model=lavo what=generate mode=incremental,recompute lengths=1024
    python run.py do=bench table=luna/t2

It measures one layer, with `bench.layers=2` a language model of two layers, with a typed task the model of its recipe;
on random input. `forward` is without gradients, `train` is forward and backward, of a recipe its whole step, `decode`
is one more token after so many, `generate` a text. A table or figure says itself what it needs. The measurements are
written to `<paths.bench>/<name>.json`; do=report renders the page and the picture of each.
"""

from collections.abc import Sequence

from omegaconf import DictConfig

from harness.bench.asked import asked_for, measure_asked
from harness.bench.command import keep, measure


def run(cfg: DictConfig, overrides: Sequence[str]) -> int:
    if asked := asked_for(overrides):
        return measure_asked(cfg, overrides, *asked)
    keep(measure(cfg, overrides), cfg)
    return 0
