"""do=bench of whole models: those that a recipe builds, with its loss, its optimizer and tokens that are random.

    python run.py do=bench task=lra/text protocol=google what=train model=linformer lengths=1024,2048

A training step is the loss of a batch, its gradients, their clipping and the update. Nothing is read from disk: the
batch has the shapes of the task's, and every sequence is full.
"""

from collections.abc import Callable, Mapping

import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from harness.bench.measure import DTYPES, Timed, memory_of
from harness.config.build import Built, build, parameter_groups
from harness.config.compose import copied
from harness.errors import UsageError

LENGTHS = ("max_length", "length")  # what a task calls its length


class Recipe:
    """A model of a recipe at any length, on `device`, with weights of seed 0. `cfg` is the composed cell.

    Raises UsageError for a task that has no length to be set.
    """

    def __init__(self, cfg: DictConfig, device: torch.device):
        self.cfg, self.device = cfg, device
        self.key = next((key for key in LENGTHS if key in cfg.task), None)
        if self.key is None:
            raise UsageError(f"task={cfg.task.name} has no length that do=bench could set; leave it out for one layer")

    def built(self, length: int, place: str | None = None) -> Built:
        """Task and model for sequences of `length`; `place` is a device that replaces the recipe's."""
        cfg = copied(self.cfg)
        cfg.task[self.key] = length
        torch.manual_seed(0)
        with torch.device(place or self.device):
            built = build(cfg)
        built.model.to(DTYPES[cfg.bench.precision])
        return built

    def prepare(self, what: str, length: int, batch: int | None = None) -> Timed:
        """Raises NotImplementedError for what a recipe has no measure of."""
        if what not in RECIPE_MEASURES:
            raise NotImplementedError(f"a recipe is measured with what={'|'.join(RECIPE_MEASURES)}, not {what}")
        built = self.built(length)
        return RECIPE_MEASURES[what](built, self.cfg, self.batch(built, length, batch))

    def batch(self, built: Built, length: int, size: int | None = None) -> dict[str, Tensor]:
        """Tokens (B, N) at random, none of them padding, and whatever of targets (B, N) and label (B,) there may be."""
        facts, generator = built.task.backbone_kwargs(), torch.Generator().manual_seed(1)
        if not isinstance(facts.get("vocab_size"), int):
            raise UsageError(f"task={self.cfg.task.name} reads no tokens, which do=bench would make up")
        shape = (size or self.cfg.bench.batch, length)
        lowest = 1 if facts.get("padding_id") == 0 else 0
        names = {"tokens": (facts["vocab_size"], shape), "targets": (facts["vocab_size"], shape)}
        names["label"] = (facts.get("classes", 2), shape[:1])
        drawn = {
            name: torch.randint(lowest if name != "label" else 0, high, of, generator=generator)
            for name, (high, of) in names.items()
        }
        return {name: values.to(self.device) for name, values in drawn.items()}


def training_step(built: Built, cfg: DictConfig, batch: Mapping[str, Tensor]) -> Timed:
    """A step of the recipe. Its memory holds the weights, their gradients and the optimizer's state, too."""
    model, task, train = built.model.train(), built.task, cfg.train
    optimizer = built.optimizer(parameter_groups(model))

    def call() -> None:
        optimizer.zero_grad(set_to_none=True)
        task.loss(model, batch).backward()
        clip(model, train)
        optimizer.step()

    def resident() -> float:
        gradients = [parameter.grad for parameter in model.parameters()]
        return memory_of([*model.parameters(), *model.buffers(), *gradients, list(optimizer.state.values())])

    return Timed(call, resident=resident)


def clip(model: nn.Module, train: DictConfig) -> None:
    """As the Trainer clips: the norm of all gradients, of each parameter's, or their values."""
    if train.clip_norm:
        nn.utils.clip_grad_norm_(model.parameters(), train.clip_norm)
    if train.clip_each:
        for parameter in model.parameters():
            nn.utils.clip_grad_norm_(parameter, train.clip_each)
    if train.clip_value:
        nn.utils.clip_grad_value_(model.parameters(), train.clip_value)


def evaluation(built: Built, cfg: DictConfig, batch: Mapping[str, Tensor]) -> Timed:
    """The model's output of the tokens, without gradients. Its memory holds the weights, too."""
    model = built.model.eval()
    call = torch.no_grad()(lambda: model(batch["tokens"]))
    return Timed(call, resident=lambda: memory_of([*model.parameters(), *model.buffers()]))


# what -> (task and model, cfg, batch) -> what is timed
RECIPE_MEASURES: dict[str, Callable[[Built, DictConfig, Mapping[str, Tensor]], Timed]] = {
    "forward": evaluation,
    "train": training_step,
}
