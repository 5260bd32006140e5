"""A plain `nn.Module` (B, N, D) -> (B, N, D) as a sequence mixer. What it can do is measured, not declared.

The module knows nothing of this project. Its constructor gets the sizes that it has names for: `dim` (or `d_model`,
`hidden_size`, `embed_dim`, `width`), `heads` (or `num_heads`, `n_heads`, `nhead`), `max_length`, `dropout`, and
`causal`. A causal slot builds it only if it sees no later token (`measure`).

Padding never reaches the module. A module whose `forward` takes `key_padding_mask` (B, N), True at padding, gets it. A
causal module reads no padding behind the last token. Any other reads the rows of one length together, without their
padding, if it is measured that zeros in place of padding change its output.

Decoding reads all tokens again for each new one: O(N) calls, and the state is the input so far.

    B batch, N length, D width
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from models.attention.base import Attention, Pattern, State

# an argument of this layer -> the names that constructors have for it, of which the first one that fits is used
SIZES = {
    "dim": ("dim", "d_model", "hidden_size", "embed_dim", "width"),
    "heads": ("heads", "num_heads", "n_heads", "nhead"),
    "max_length": ("max_length",),
    "dropout": ("dropout",),
    "causal": ("causal",),
}
MASK = "key_padding_mask"
BATCH, LENGTH, CUT = 2, 24, 13  # of the tokens that a module is measured with
TOLERANCE = 1e-4  # float32, relative to the largest output
SEED = 0


@dataclass(frozen=True)
class Measured:
    """`sees_future`, `minds_padding`: an output depends on later tokens, or on zeros behind the last token."""

    sees_future: bool
    minds_padding: bool


class PlainModule(Attention):
    """`module`: the class, or a function that returns the module. `causal`: it may fill causal slots.

    Raises ValueError for a module that cannot read (B, N, D), returns another shape or type, changes its input in
    place, passes its parameters no gradient, or sees later tokens in a causal slot.
    """

    patterns = frozenset({Pattern.NONCAUSAL_SELF, Pattern.CAUSAL_SELF})
    linear = False
    has_weights = False

    def __init__(self, dim: int, heads: int, *, module: Callable[..., nn.Module], causal: bool = False, **options: Any):
        super().__init__(dim, heads, **options)
        self.name = name_of(module)
        if self.pattern.causal and not causal:
            raise ValueError(f"{self.name} has no {self.pattern} form: model.causal=true says that it has one")
        sizes = {"dim": dim, "heads": heads, "max_length": self.max_length, "dropout": self.dropout}
        keywords = fitting(module, sizes | {"causal": self.pattern.causal})
        self.fixed_length = "max_length" in keywords
        self.measured = measured(module, keywords, dim)
        if self.pattern.causal and self.measured.sees_future:
            raise ValueError(f"{self.name} sees later tokens, so it cannot fill a {self.pattern} slot")
        self.module = build(module, keywords)
        self.takes_mask = MASK in inspect.signature(self.module.forward).parameters

    def mix_tokens(self, x: Tensor, source: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        if key_padding_mask is None:
            return self.module(x)
        if self.takes_mask:
            return self.module(x, **{MASK: key_padding_mask})
        if self.measured.minds_padding:
            return self.by_length(x, ~key_padding_mask)
        return self.module(x.masked_fill(key_padding_mask[..., None], 0))

    def by_length(self, x: Tensor, kept: Tensor) -> Tensor:
        """The rows of each length together, without their padding; zeros at padding. `kept` (B, N): no padding."""
        y, lengths = torch.zeros_like(x), kept.sum(1)
        for length in lengths[lengths > 0].unique().tolist():
            tokens = kept & (lengths == length)[:, None]  # (B, N)
            y = y.masked_scatter(tokens[..., None], self.module(x[tokens].view(-1, length, self.dim)).to(y.dtype))
        return y

    def empty_state(self, batch: int) -> State:
        parameter = next(self.module.parameters(), torch.empty(0))
        return {"seen": parameter.new_zeros(batch, 0, self.dim)}

    def chunk(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        seen = torch.cat([state["seen"].to(x), x], 1)
        return self.module(seen)[:, -x.shape[1] :], {**state, "seen": seen}


_measured: dict[tuple[Any, ...], Measured] = {}


def measured(module: Callable[..., nn.Module], keywords: Mapping[str, Any], dim: int) -> Measured:
    """What a new module does on random tokens on the CPU, measured once. The generators are left as they are."""
    # a configured class is a new `partial` each time
    function, given = getattr(module, "func", module), getattr(module, "keywords", {})
    key = function, repr(sorted(given.items())), *keywords.items(), dim
    if key not in _measured:
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            torch.manual_seed(SEED)
            made = build(module, keywords)
            with torch.no_grad():
                for parameter in made.parameters():  # a zero would hide what stands behind it
                    parameter += 0.1 * torch.randn_like(parameter)
            _measured[key] = measure(made, dim)
    return _measured[key]


def measure(module: nn.Module, dim: int) -> Measured:
    """Raises ValueError if (B, N, D) is not read, or not returned, or if examples of a batch see each other."""
    x, other = torch.randn(2, BATCH, LENGTH, dim)
    changed = torch.cat([x[:, :CUT], other[:, CUT:]], 1)
    padded = torch.cat([x[:, :CUT], torch.zeros_like(x[:, CUT:])], 1)
    alone = read(module.eval(), x[:, :CUT])
    if differs(read(module, x[:1, :CUT]), alone[:1]):  # a score would depend on its neighbours in the batch
        raise ValueError(f"{type(module).__name__} mixes the examples of a batch: mean(0), for example, does")
    in_training = differs(read(module.train(), x)[:, :CUT], read(module, changed)[:, :CUT])
    require_gradient(module, x)
    sees_future = in_training or differs(read(module.eval(), x)[:, :CUT], read(module, changed)[:, :CUT])
    return Measured(sees_future, minds_padding=differs(read(module.eval(), padded)[:, :CUT], alone))


@torch.no_grad()
def read(module: nn.Module, x: Tensor) -> Tensor:
    """The output of a module, with the same random numbers for each call."""
    torch.manual_seed(SEED)
    name, given = type(module).__name__, x.clone()
    try:
        y = module(given)
    except (Exception, SystemExit) as error:
        reason = " ".join(str(error).split())[:160]
        raise ValueError(f"{name} cannot read {tuple(x.shape)}: {type(error).__name__}: {reason}") from error
    if not isinstance(y, Tensor) or y.shape != x.shape:
        returned = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
        raise ValueError(f"{name} returns {returned} for an input {tuple(x.shape)}, not a tensor of the same shape")
    if y.dtype != x.dtype:
        raise ValueError(f"{name} returns {y.dtype} for {x.dtype}: let forward end with .to(x.dtype)")
    if not torch.equal(given, x):  # the residual branch of a layer reads the same tensor
        raise ValueError(f"{name} changes its input in place: let forward begin with x = x.clone()")
    return y


def require_gradient(module: nn.Module, x: Tensor) -> None:
    """Raises ValueError if no parameter of a module in training would learn, as under `torch.no_grad`."""
    with torch.inference_mode(False), torch.enable_grad():
        learns = module(x.clone()).requires_grad
    if not learns and any(parameter.requires_grad for parameter in module.parameters()):
        raise ValueError(f"{type(module).__name__} passes no gradient to its parameters: no_grad or detach in forward")


def differs(a: Tensor, b: Tensor) -> bool:
    return not float((a - b).abs().max()) <= TOLERANCE * float(a.abs().max())


def build(module: Callable[..., nn.Module], keywords: Mapping[str, Any]) -> nn.Module:
    """Raises ValueError if the result is no module."""
    try:
        made = module(**keywords)
    except TypeError as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{name_of(module)}: {reason}; more of its arguments: +model.module.<name>=") from error
    except (Exception, SystemExit) as error:
        reason = " ".join(str(error).split())[:160]
        raise ValueError(f"{name_of(module)} cannot be built: {type(error).__name__}: {reason}") from error
    if not isinstance(made, nn.Module):
        raise ValueError(f"{name_of(module)} gives {type(made).__name__}, not a torch.nn.Module")
    return made


def fitting(module: Callable[..., nn.Module], sizes: Mapping[str, Any]) -> dict[str, Any]:
    """The sizes under the names that a constructor has for them, without those that the configuration sets."""
    function, given = getattr(module, "func", module), getattr(module, "keywords", {})
    parameters = inspect.signature(function).parameters
    names = {size: next((name for name in SIZES[size] if name in parameters), None) for size in sizes}
    return {name: sizes[size] for size, name in names.items() if name is not None and name not in given}


def name_of(module: Callable[..., nn.Module]) -> str:
    return getattr(getattr(module, "func", module), "__name__", "the module")
