"""What composes can learn: at smoke size its output depends on its input, and every parameter that is trained is used.

A model that cannot see its input trains like any other, to the score of guessing. So for each model, task and protocol

    the output changes with the first, with a middle and with the last token, each by itself, and
    one batch gives each trained parameter a gradient.

What cannot learn is refused where it is composed, in one line.
"""

import functools

import pytest
import torch

from harness.commands import plan
from harness.config.build import build, on_meta, parameter_groups
from harness.config.compose import compose, options, recipes, with_model
from harness.errors import UsageError
from tests.helpers.tasks import no_progress

TASKS = [name for name, _ in options("task")]
MODELS = [name for name, _ in options("model") if name != "custom"]
RECIPES = [(protocol, task) for task in TASKS for protocol in recipes(task)]
NOISE = 1e-11  # in float64, between rows of a batch that are equal
REFUSALS = ("has no ", "would be constant")  # of what has no form for the slot, and of what sees nothing


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


@functools.cache
def composed(protocol, task, root, *overrides):
    return compose([f"task={task}", f"protocol={protocol}", "budget=smoke", f"paths.data={root}", *overrides])


@functools.cache
def batch_of(protocol, task, root, *overrides):
    """Eight examples: tokens drawn at random, of the longest length, or a task's own series and clouds."""
    cfg = composed(protocol, task, root, *overrides)
    made = build(with_model(cfg, "vanilla")).task
    sizes = made.backbone_kwargs()
    if "vocab_size" not in sizes:
        made.prepare(no_progress)
        made.load()
        batch = made.split("train").batch(range(8))
        return {key: x.double() if x.is_floating_point() else x for key, x in batch.items()}
    shape = (8, 2, sizes["max_length"]) if task == "lra/retrieval" else (8, sizes["max_length"])
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(1, sizes["vocab_size"], shape, generator=generator)
    return {"tokens": tokens, "label": torch.randint(sizes["classes"], (8,), generator=generator)}


def model_and_task(cfg):
    """In float64, every parameter moved, so that none hides behind one that starts at zero."""
    torch.manual_seed(0)
    built = build(cfg)
    model = built.model.double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.02 * torch.randn_like(parameter)
    return built, model


def unseen(model, batch):
    """The places of the first example that the output does not depend on, of the first, a middle and the last one."""
    name = next(key for key in ("tokens", "past", "partial") if key in batch)
    others = [batch[key][:1] for key in ("past_time", "future_time") if key in batch]
    x = batch[name][0]
    sequences = x if name == "tokens" and x.ndim == 2 else x[None]  # of a pair, or one
    rows, places = [x], []
    for number, sequence in enumerate(sequences):
        for position in (0, len(sequence) // 2, len(sequence) - 1):
            row = sequences.clone()
            row[number, position] += 0.5 if x.is_floating_point() else -1 if sequence[position] > 1 else 1
            rows.append(row.view_as(x))
            places.append((number, position))
    with torch.no_grad():
        output = model(torch.stack(rows), *(other.expand(len(rows), -1, -1) for other in others))
    if isinstance(output, tuple):  # of a completion, the first point that is predicted
        output = output[1][:, :1]
    change = (output[1:] - output[:1]).flatten(1).abs().amax(1)
    assert torch.isfinite(change).all()
    return [place for place, size in zip(places, change.tolist(), strict=True) if size < NOISE]


def untrained(built, model, batch):
    """The parameters that claim to be trained and get no gradient, or that the optimiser is not given."""
    model.train()
    built.task.loss(model, batch).backward()
    given = {id(p) for group in built.optimizer(parameter_groups(model)).param_groups for p in group["params"]}
    return [
        name
        for name, p in model.named_parameters()
        if p.requires_grad and (id(p) not in given or p.grad is None or not p.grad.any())
    ]


def check(protocol, task, model, root):
    cfg = with_model(composed(protocol, task, root), model)
    try:
        on_meta(cfg)
    except UsageError as error:
        assert any(reason in str(error) for reason in REFUSALS) and "\n" not in str(error), error
        return "refused"
    built, made = model_and_task(cfg)
    batch = batch_of(protocol, task, root)
    assert not unseen(made.eval(), batch), f"{model}: the output does not depend on these"
    assert not untrained(built, made, batch), f"{model}: these are never trained"
    return "learns"
