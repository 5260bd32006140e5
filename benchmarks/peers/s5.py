"""The state space of S5 in the `s5-pytorch` package: no projections around it, all eigenvalues kept, causal."""

from pathlib import Path

import torch

from benchmarks.peers.base import LayerPair, Project, layer, package
from benchmarks.side_by_side import copy
from models.attention.base import Pattern
from models.attention.s5 import S5

DIM, STATE = 64, 64


def s5(peers: Path | None) -> LayerPair:
    from s5 import S5 as Public

    theirs = Public(DIM, STATE)
    settings = {"d_state": STATE, "blocks": 1, "conj_sym": False, "gate": "none"}
    model = layer(S5, DIM, 1, pattern=Pattern.CAUSAL_SELF, **settings)
    values = {"eigenvalues": theirs.seq.Lambda, "enter": theirs.seq.B, "leave": theirs.seq.C}
    values = {name: torch.view_as_real(x) if x.is_complex() else x for name, x in values.items()}
    copy(model, values | {"skip": theirs.seq.D, "log_step": theirs.seq.log_step})
    return LayerPair("s5", package("s5-pytorch"), model, theirs, theirs, tolerance=1e-3)


PROJECT = Project("s5-pytorch", (("s5", s5),), packages=("s5-pytorch==0.2.1",))
