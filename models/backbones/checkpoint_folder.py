"""A language model in Hugging Face's layout: a folder with config.json and one or more safetensors files.

Supported architectures are Gemma 2 (`gemma2`) and Llama (`llama`). A recipe's sizes must equal those in config.json, so
that the planned costs are those of the run. Nothing in a folder is executed: pickled checkpoints and checkpoints with
their own code are refused. Gemma 2's RMSNorm multiplies by 1 + w; here the sum is the norm's weight.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

NO_SAFETENSORS = "checkpoints take safetensors: pip install -e '.[pretrained]', or longhaul[pretrained]"
MAX_JSON_BYTES = 2**26
CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
# values that config.json may omit
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "gemma2": {
        "hidden_activation": "gelu_pytorch_tanh",
        "rms_norm_eps": 1e-6,
        "query_pre_attn_scalar": 256,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
        "sliding_window": 4096,
        "tie_word_embeddings": True,
    },
    "llama": {"hidden_act": "silu", "rms_norm_eps": 1e-6, "tie_word_embeddings": False},
}
# our layer parameters -> theirs; norms differ between the architectures below
COMMON = {
    "attention.q_proj": "self_attn.q_proj",
    "attention.k_proj": "self_attn.k_proj",
    "attention.v_proj": "self_attn.v_proj",
    "attention.out_proj": "self_attn.o_proj",
    "ffn.gate": "mlp.gate_proj",
    "ffn.value": "mlp.up_proj",
    "ffn.out": "mlp.down_proj",
    "attention_norm": "input_layernorm",
}
LAYER: Mapping[str, Mapping[str, str]] = {
    "gemma2": {
        **COMMON,
        "attention_out_norm": "post_attention_layernorm",
        "ffn_norm": "pre_feedforward_layernorm",
        "ffn_out_norm": "post_feedforward_layernorm",
    },
    "llama": {**COMMON, "ffn_norm": "post_attention_layernorm"},
}


@dataclass(frozen=True)
class CheckpointFolder:
    """Raises a one-line ValueError for a folder that cannot be read, and ImportError without safetensors."""

    path: str

    @property
    def folder(self) -> Path:
        return Path(self.path).expanduser()

    def load(self, model: nn.Module, config: Any) -> None:
        """Fill the parameters of a `PretrainedLM` except the new ones; `config` is its `PretrainedConfig`."""
        architecture, there = self.described()
        self.check_agrees(there, config)
        offset = 1.0 if architecture == "gemma2" else 0.0
        wanted = {f"{ours}.weight": f"{theirs}.weight" for ours, theirs in self.names(architecture, config).items()}
        files = self.files()
        parameters = dict(model.named_parameters(remove_duplicate=False))
        if missing := sorted(set(wanted.values()) - set(files)):
            raise ValueError(f"{self.folder}: no {missing[0]}, and {len(missing) - 1} more, in its safetensors")
        # a tied head may also be stored
        if unknown := sorted(set(files) - set(wanted.values()) - {"lm_head.weight"}):
            raise ValueError(f"{self.folder}: {unknown[0]}, and {len(unknown) - 1} more, is not part of {architecture}")
        by_file: dict[Path, list[str]] = {}
        for ours, theirs in wanted.items():
            by_file.setdefault(files[theirs], []).append(ours)
        for file, names in by_file.items():
            with opened(file) as stored, torch.no_grad():
                for name in names:
                    tensor = stored.get_tensor(wanted[name])
                    self.check_tensor(wanted[name], tensor, parameters[name])
                    parameters[name].copy_(tensor.to(parameters[name].dtype) + (offset if "norm" in name else 0.0))

    def check_tensor(self, name: str, tensor: Tensor, parameter: Tensor) -> None:
        if not tensor.is_floating_point():
            raise ValueError(f"{self.folder}: {name} is {tensor.dtype}: quantised checkpoints are not supported")
        if tensor.shape != parameter.shape:
            raise ValueError(f"{self.folder}: {name} has the shape {tuple(tensor.shape)}, not {tuple(parameter.shape)}")

    def read_config(self) -> dict[str, Any]:
        if not self.folder.is_dir():
            raise ValueError(
                f"checkpoint: {self.folder} is not a folder; put a Hugging Face checkpoint there (config.json)"
            )
        config = read_json(self.folder / CONFIG)
        if "auto_map" in config:
            raise ValueError(f"{self.folder / CONFIG}: auto_map asks for the checkpoint's own code, which is never run")
        return config

    def described(self) -> tuple[str, dict[str, Any]]:
        """The architecture, and the fields of `PretrainedConfig` that config.json determines."""
        given = self.read_config()
        architecture = given.get("model_type")
        where = self.folder / CONFIG
        if architecture not in DEFAULTS:
            raise ValueError(f"{where}: model_type is {architecture!r}, not one of {', '.join(DEFAULTS)}")
        try:
            there = fields(architecture, {**DEFAULTS[architecture], **given})
        except (AttributeError, KeyError, TypeError, ZeroDivisionError) as error:
            reason = f"{type(error).__name__} at {str(error)[:80]}"
            raise ValueError(f"{where}: not the config of {architecture} ({reason})") from error
        except ValueError as error:
            raise ValueError(f"{where}: {str(error)[:160]}") from error
        return architecture, there

    def check_agrees(self, there: Mapping[str, Any], config: Any) -> None:
        """Raises ValueError with the overrides for fields in which a recipe differs."""
        width = config.head_dim or config.dim // config.heads
        settings = {name: getattr(config, name) for name in there}
        settings |= {"kv_heads": config.kv_heads or config.heads, "head_dim": width}
        settings |= {"query_scalar": float(config.query_scalar or width), "norm_eps": config.norm_eps or 1e-6}
        if different := [name for name, value in there.items() if settings[name] != value]:
            cure = " ".join(f"backbone.{name}={'null' if there[name] is None else there[name]}" for name in different)
            cure = cure.replace("backbone.vocab_size", "task.vocabulary")
            raise ValueError(f"{self.folder}: another architecture than the recipe's; to read it: {cure}")

    def names(self, architecture: str, config: Any) -> dict[str, str]:
        """Our module names -> theirs."""
        names = {"embedding": "model.embed_tokens", "final_norm": "model.norm"}
        if not config.tied:
            names["head"] = "lm_head"
        for i in range(config.layers):
            names |= {
                f"layers.{i}.{ours}": f"model.layers.{i}.{theirs}" for ours, theirs in LAYER[architecture].items()
            }
        return names

    def files(self) -> dict[str, Path]:
        """The file of each tensor."""
        if (self.folder / INDEX).is_file():
            index = read_json(self.folder / INDEX).get("weight_map")
            if not isinstance(index, dict) or not all(isinstance(file, str) for file in index.values()):
                raise ValueError(f"{self.folder / INDEX}: no weight_map of names to files")
            if outside := sorted(file for file in index.values() if Path(file).name != file):
                raise ValueError(f"{self.folder / INDEX}: {outside[0]} is not a file name in this folder")
            return {name: self.folder / file for name, file in index.items()}
        if not (self.folder / WEIGHTS).is_file():
            pickled = sorted(file.name for file in self.folder.iterdir() if file.suffix in PICKLED)
            note = f"{pickled[0]} is pickled and may run code; " if pickled else ""
            raise ValueError(f"{self.folder}: {note}no {WEIGHTS} and no {INDEX} there")
        with opened(self.folder / WEIGHTS) as stored:
            return dict.fromkeys(stored.keys(), self.folder / WEIGHTS)


def fields(architecture: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """config.json as fields of `PretrainedConfig`. Raises ValueError for unsupported contents."""
    gemma, rope = architecture == "gemma2", given.get("rope_parameters") or {}
    scaling = given.get("rope_scaling") or rope
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind != "default":
        raise ValueError(f"rope_type {kind!r} is not supported, only the default")
    if given.get("attention_bias") or given.get("mlp_bias"):
        raise ValueError("projections with biases are not supported")
    heads, dim, layers = given["num_attention_heads"], given["hidden_size"], given["num_hidden_layers"]
    head_dim = given.get("head_dim") or dim // heads
    sliding = given["sliding_window"] if gemma else None
    usual = ["full_attention" if i % 2 or sliding is None else "sliding_attention" for i in range(layers)]
    if given.get("layer_types") not in (None, usual):
        raise ValueError("layer_types are not sliding_attention and full_attention in turn")
    activation = given["hidden_activation" if gemma else "hidden_act"]
    return {
        "vocab_size": given["vocab_size"],
        "dim": dim,
        "ffn_dim": given["intermediate_size"],
        "layers": layers,
        "heads": heads,
        "kv_heads": given.get("num_key_value_heads") or heads,
        "head_dim": head_dim,
        "norm": "sandwich" if gemma else "pre",
        "norm_kind": "rmsnorm",
        "norm_eps": given["rms_norm_eps"],
        "ffn": {"gelu_pytorch_tanh": "geglu", "silu": "swiglu"}.get(activation, activation),
        "positions": "none",
        "final_norm": True,
        "embedding_norm": False,
        "embedding_scale": gemma,
        "tied": given["tie_word_embeddings"],
        "head_bias": False,
        "rope_base": float(rope.get("rope_theta", given.get("rope_theta", 10000.0))),
        "query_scalar": float(given["query_pre_attn_scalar"] if gemma else head_dim),
        "attention_cap": given["attn_logit_softcapping"] if gemma else None,
        "logit_cap": given["final_logit_softcapping"] if gemma else None,
        "sliding_window": sliding,
    }


@contextmanager
def opened(file: Path) -> Iterator[Any]:
    """An open safetensors file; errors become one-line ValueErrors."""
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise ImportError(NO_SAFETENSORS) from error
    with ExitStack() as stack:
        require_file(file)
        try:
            stored = stack.enter_context(safe_open(file, framework="pt", device="cpu"))
        except (OSError, SafetensorError) as error:
            raise ValueError(f"{file}: not safetensors ({str(error).splitlines()[0][:120]})") from error
        yield stored


def require_file(file: Path) -> None:
    """Raises ValueError for what is there but no regular file: reading a FIFO or a device may never end."""
    if file.exists() and not file.is_file():
        raise ValueError(f"{file}: not a regular file")


def read_json(file: Path) -> dict[str, Any]:
    """Raises ValueError for a file that is missing, not JSON, or not a JSON object."""
    require_file(file)
    try:
        if file.stat().st_size > MAX_JSON_BYTES:
            raise ValueError(f"more than {MAX_JSON_BYTES:,} bytes")
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{file}: {error.strerror or 'cannot be read'}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file}: not JSON ({str(error)[:120]})") from error
    if not isinstance(content, dict):
        raise ValueError(f"{file}: not a JSON object")
    return content
