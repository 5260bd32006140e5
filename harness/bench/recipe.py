"""do=bench task=...: the model, loss and optimizer of a recipe, timed on random tokens.

    python run.py do=bench task=lra/text protocol=google what=train model=linformer lengths=1024,2048

A training step computes the loss of a batch and its gradients, clips them and updates the weights. No data are read:
the batch has the shapes of the task's batches, and every sequence has the full length.
"""

from collections.abc import Callable, Mapping

import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from harness.bench.measure import DTYPES, Timed, memory_of
from harness.config.build import Built, build, parameter_groups
from harness.config.compose import arguments, copied
from harness.errors import UsageError

LENGTHS = ("max_length", "length")  # keys that hold a task's length


class RecipeModel:
    """The model of a recipe at any length, on `device`, with weights of seed 0. `cfg` is the composed cell.

    Raises UsageError for a task whose length cannot be set.
    """

    def __init__(self, cfg: DictConfig, device: torch.device):
        self.cfg, self.device, self.hyperparameters = cfg, device, arguments(cfg.model)
        self.key = next((key for key in LENGTHS if key in cfg.task), None)
        if self.key is None:
            raise UsageError(f"task={cfg.task.name} has no length that do=bench could set; leave it out for one layer")

    def built(self, length: int, device: str | None = None) -> Built:
        """Task and model for sequences of `length`; `device` replaces the command's."""
        cfg = copied(self.cfg)
        cfg.task[self.key] = length
        torch.manual_seed(0)
        with torch.device(device or self.device):
            built = build(cfg)
        built.model.to(DTYPES[cfg.bench.precision])
        return built

    def model(self, length: int, device: str | None = None) -> nn.Module:
        return self.built(length, device).model

    def prepare(self, measure: str, length: int) -> Timed:
        """Raises NotImplementedError for a measure that recipes lack."""
        if measure not in RECIPE_MEASURES:
            raise NotImplementedError(f"a recipe is measured with what={'|'.join(RECIPE_MEASURES)}, not {measure}")
        built = self.built(length)
        return RECIPE_MEASURES[measure](built, self.cfg, self.batch(built, length))

    def batch(self, built: Built, length: int, size: int | None = None) -> dict[str, Tensor]:
        """Random tokens, targets and answers (B, N) without padding, and labels (B,); a task reads what it uses."""
        facts, generator = built.task.backbone_kwargs(), torch.Generator().manual_seed(1)
        vocabulary, classes = facts.get("vocab_size"), facts.get("classes", 2)
        if not isinstance(vocabulary, int):
            raise UsageError(f"task={self.cfg.task.name} reads no tokens, which do=bench would make up")
        shape = (size or self.cfg.bench.batch, length)
        lowest = 1 if facts.get("padding_id") == 0 else 0
        batch = {name: torch.randint(lowest, vocabulary, shape, generator=generator) for name in ("tokens", "targets")}
        batch["answers"] = batch["targets"]  # of a probe: each token is asked for
        batch["label"] = torch.randint(classes, shape[:1], generator=generator)
        return {name: values.to(self.device) for name, values in batch.items()}


def training_step(built: Built, cfg: DictConfig, batch: Mapping[str, Tensor]) -> Timed:
    """One update. The memory includes the weights, their gradients and the optimizer state."""
    model, train = built.model.train(), cfg.train
    optimizer = built.optimizer(parameter_groups(model))

    def call() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss_of(built, batch).backward()
        clip(model, train)
        optimizer.step()

    def resident() -> float:
        gradients = [parameter.grad for parameter in model.parameters()]
        return memory_of([*model.parameters(), *model.buffers(), *gradients, list(optimizer.state.values())])

    return Timed(call, resident=resident)


def loss_of(built: Built, batch: Mapping[str, Tensor]) -> Tensor:
    """Raises UsageError for a task whose loss reads more than random tokens (B, N), targets, answers and labels."""
    try:
        return built.task.loss(built.model, batch)
    except (LookupError, ValueError) as error:
        name = type(built.task).__name__
        raise UsageError(
            f"the loss of {name} reads more than do=bench makes up ({error!r}): type what=forward"
        ) from error


def clip(model: nn.Module, train: DictConfig) -> None:
    """Clip as the Trainer and TaskModule do: the norm of all gradients, the norm per parameter, or the values."""
    if train.clip_norm:
        nn.utils.clip_grad_norm_(model.parameters(), train.clip_norm)
    if train.clip_each:
        for parameter in model.parameters():
            nn.utils.clip_grad_norm_(parameter, train.clip_each)
    if train.clip_value:
        nn.utils.clip_grad_value_(model.parameters(), train.clip_value)


def evaluation(built: Built, cfg: DictConfig, batch: Mapping[str, Tensor]) -> Timed:
    """The output for the tokens, without gradients. The memory includes the weights."""
    model = built.model.eval()
    call = torch.no_grad()(lambda: model(batch["tokens"]))
    return Timed(call, resident=lambda: memory_of([*model.parameters(), *model.buffers()]))


# measure -> function of (task and model, cfg, batch) that returns the call to time
RECIPE_MEASURES: dict[str, Callable[[Built, DictConfig, Mapping[str, Tensor]], Timed]] = {
    "forward": evaluation,
    "train": training_step,
}
