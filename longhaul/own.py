"""A user's own class as a model: `longhaul.run(model=longhaul.attention(Mixer), ...)`."""

from dataclasses import dataclass
from typing import Any

from harness.config.overrides import to_overrides
from harness.errors import UsageError

CONTRACT = "patterns"  # an attribute of a class that follows models/attention/base.py


@dataclass(frozen=True)
class OwnModule:
    """`overrides`: what chooses the class on the command line."""

    overrides: tuple[str, ...]


def attention(module: type, *, causal: bool = False, name: str | None = None, **arguments: Any) -> OwnModule:
    """A class as the `model` of `run` and `plan`: a plain `nn.Module` (B, N, D) -> (B, N, D), or an `Attention`.

    `causal`: a plain module may fill causal slots; a run refuses it if it sees later tokens. `name`: what records and
    tables call it, by default the class's own name in small letters. `arguments`: those of its constructor, which also
    gets the sizes that it has names for (`models.attention.module`). The class stands in a file that can be imported,
    because other processes import it; passing it here trusts its package. Raises UsageError.
    """
    if not isinstance(module, type):
        raise UsageError(f"attention: a class is expected, not {type(module).__name__}; its arguments are keywords")
    if not isinstance(causal, bool):
        raise UsageError(f"attention: causal={str(causal)[:60]!r}: True or False is expected")
    if name is not None and not isinstance(name, str):
        raise UsageError(f"attention: name={str(name)[:60]!r}: a text is expected")
    path = f"{module.__module__}.{module.__qualname__}"
    if module.__module__ == "__main__" or "<locals>" in path:
        raise UsageError(f"attention: {module.__qualname__} cannot be imported: put it into a file, then import it")
    if not callable(getattr(module, "forward", None)):
        raise UsageError(f"attention: {path} is no torch.nn.Module: it has no forward")
    settings: dict[str, Any] = {"model.name": name or module.__name__.lower()}
    if hasattr(module, CONTRACT):
        choice, prefix = "custom", "model."
    else:
        choice, prefix = "module", "model.module."
        settings["model.causal"] = causal
    settings |= {f"{prefix}_target_": path, "trusted_packages": [path.partition(".")[0]]}
    added = to_overrides({f"+{prefix}{key}": value for key, value in arguments.items()})
    return OwnModule((f"model={choice}", *to_overrides(settings), *added))
