"""Less memory for the same numbers: layers that the backward pass computes again, and smaller micro-batches."""

import pytest
import torch
from omegaconf import DictConfig

from harness.config.build import build
from harness.config.compose import compose
from harness.errors import UsageError
from harness.training.memory import recompute_layers, smaller

DROPOUTS = [f"backbone.{name}=0.2" for name in ("dropout", "attention_dropout")]
CELLS = [
    *(("lra/listops", model, DROPOUTS) for model in ("vanilla", "lavo", "luna", "latte", "reformer")),
    *(("lm/wikitext103", model, []) for model in ("transformer_xl", "llp", "gla")),
]


AGAIN = DictConfig({"checkpoint_layers": True})


def loss_and_gradients(built, length):
    tokens = torch.randint(1, 9, (2, length), generator=torch.Generator().manual_seed(1))
    targets, label = tokens.roll(-1, 1), torch.tensor([0, 1])
    torch.manual_seed(3)  # of the masks
    loss = built.task.loss(built.model.train(), {"tokens": tokens, "targets": targets, "label": label})
    built.model.zero_grad()
    loss.backward()
    return loss, [parameter.grad for parameter in built.model.parameters() if parameter.requires_grad]


@pytest.mark.parametrize(("task", "model", "more"), CELLS)
def test_layers_computed_again_have_the_same_loss_and_gradients(task, model, more):
    cfg = compose([f"task={task}", f"model={model}", "budget=smoke", *more])
    torch.manual_seed(0)
    built, length = build(cfg), cfg.task.get("max_length") or cfg.task.length
    loss, gradients = loss_and_gradients(built, length)
    names = list(built.model.state_dict())
    recompute_layers(built.model, AGAIN)
    again, same = loss_and_gradients(built, length)
    assert torch.equal(loss, again) and list(built.model.state_dict()) == names
    for ours, theirs in zip(same, gradients, strict=True):
        assert torch.equal(ours, theirs)


def test_a_layer_that_keeps_statistics_is_not_computed_again():
    built = build(compose(["task=lra/listops", "model=routing", "budget=smoke"]))
    recompute_layers(built.model, AGAIN)
    with pytest.raises(UsageError, match=r"checkpoint_layers=true: TransformerLayer keeps statistics"):
        loss_and_gradients(built, 32)
    with pytest.raises(UsageError, match=r"checkpoint_layers=true: Linear has no layers"):
        recompute_layers(torch.nn.Linear(2, 2), AGAIN)


@pytest.mark.parametrize(("words", "advice"), [
    (["train.batch_size=16"], "train.micro_batch_size=8"),
    (["train.batch_size=16", "resources.devices=2"], "train.micro_batch_size=4"),
    (["train.batch_size=15"], "train.micro_batch_size=5"),
    (["train.batch_size=16", "train.micro_batch_size=1"], "resources.checkpoint_layers=true"),
    (["train.batch_tokens=4096"], "train.micro_batch_tokens=2048"),
    (["train.batch_tokens=4096", "train.micro_batch_tokens=1024"], "train.micro_batch_tokens=512"),
])  # fmt: skip
def test_a_lack_of_memory_names_the_setting_that_takes_half(words, advice):
    assert smaller(compose(["task=lra/listops", "model=lavo", "budget=smoke", "trainer=cpu", *words])) == advice
