"""Apollo against trajectories of the published code; the settings that it refuses and the state that it saves."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from harness.training.optim.apollo import Apollo

GOLDEN = Path(__file__).parents[3] / "shared" / "golden"
CASES = ("constant_nowd", "constant_l2", "constant_stable", "belief_nowd_beta95", "belief_decoupled")
OTHER_NAMES = {"L2": "l2"}


def golden(case):
    file = GOLDEN / f"apollo_{case}.npz"
    if not file.is_file():
        pytest.skip("the golden numbers are not here")
    arrays = dict(np.load(file))
    meta = json.loads(str(arrays.pop("meta")))
    settings = {key: value for key, value in meta["hyper"].items() if key != "steps"}
    if "weight_decay_type" in settings:
        settings["weight_decay_type"] = OTHER_NAMES.get(settings["weight_decay_type"], settings["weight_decay_type"])
    return {name: torch.from_numpy(array) for name, array in arrays.items()}, settings, meta["tolerance_max_abs"]


@pytest.mark.parametrize("case", CASES)
def test_trajectories_on_given_gradients_are_those_of_the_published_code(case):
    arrays, settings, tolerance = golden(case)
    parameters = [nn.Parameter(arrays[f"mlp_p{i}_0"].clone()) for i in range(4)]
    optimizer = Apollo(parameters, **settings)
    for t in range(20):
        for i, parameter in enumerate(parameters):
            parameter.grad = arrays[f"fixed_g{i}"][t].clone()
        optimizer.step()
        for i, parameter in enumerate(parameters):
            assert (parameter.detach() - arrays[f"fixed_p{i}_traj"][t]).abs().max() <= tolerance
            assert torch.equal(parameter.grad, arrays[f"fixed_g{i}"][t]), "gradients are not written to"
    state = optimizer.state[parameters[0]]
    for ours, theirs in {"mean": "exp_avg_grad", "curvature": "hessian", "update": "update"}.items():
        assert (state[ours] - arrays[f"fixed_p0_state_{theirs}"]).abs().max() <= tolerance


@pytest.mark.parametrize("case", CASES)
def test_trajectories_of_a_quadratic_and_of_a_network_are_those_of_the_published_code(case):
    arrays, settings, tolerance = golden(case)
    point = nn.Parameter(arrays["quad_p0"].clone())
    optimizer = Apollo([point], **settings)
    for t in range(20):
        optimizer.zero_grad()
        (0.5 * point @ arrays["quad_A"] @ point - arrays["quad_b"] @ point).backward()
        optimizer.step()
        assert (point.detach() - arrays["quad_traj"][t + 1]).abs().max() <= tolerance

    w1, b1, w2, b2 = weights = [nn.Parameter(arrays[f"mlp_p{i}_0"].clone()) for i in range(4)]
    optimizer = Apollo(weights, **settings)
    for t in range(20):
        optimizer.zero_grad()
        loss = F.mse_loss(F.linear(torch.tanh(F.linear(arrays["mlp_x"], w1, b1)), w2, b2), arrays["mlp_y"])
        loss.backward()
        optimizer.step()
        assert loss.item() == pytest.approx(arrays["mlp_loss"][t].item(), abs=tolerance)
        for i, weight in enumerate(weights):
            assert (weight.detach() - arrays[f"mlp_p{i}_traj"][t]).abs().max() <= tolerance


def test_a_restored_state_continues_as_if_uninterrupted():
    def updates(optimizer, parameter, steps):
        for t in steps:
            parameter.grad = torch.randn(3, 2, generator=torch.Generator().manual_seed(t))
            optimizer.step()

    whole = nn.Parameter(torch.ones(3, 2))
    updates(Apollo([whole], 0.1), whole, range(6))
    first = nn.Parameter(torch.ones(3, 2))
    updates(half := Apollo([first], 0.1), first, range(3))
    file = io.BytesIO()
    torch.save(half.state_dict(), file)
    second = nn.Parameter(first.detach().clone())
    resumed = Apollo([second], 0.1)
    resumed.load_state_dict(torch.load(io.BytesIO(file.getvalue()), weights_only=True))
    updates(resumed, second, range(3, 6))
    assert torch.equal(whole, second) and not torch.equal(whole, first)


@pytest.mark.parametrize("wrong", [{"lr": 0.0}, {"beta": 1.0}, {"rebound": "none"}, {"weight_decay_type": "L2"}])
def test_settings_out_of_range_are_refused_in_one_line(wrong):
    with pytest.raises(ValueError) as refused:
        Apollo([nn.Parameter(torch.ones(1))], **{"lr": 0.1, **wrong})
    assert "\n" not in str(refused.value) and next(iter(wrong)) in str(refused.value)
