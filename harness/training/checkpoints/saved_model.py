"""The trained model of a record, from its run directory or from an exported folder, which can be published.

An exported folder holds
    model.safetensors   the weights that the cell was tested with
    config.json         model, task and backbone, resolved; no path of the training machine
    record.json         the cell's record
    README.md           a model card, as a hub reads it: recipe, scores, how to load it

A configuration from elsewhere builds only what `harness.config.instantiate` allows; weights are tensors.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from harness.config import yaml_files
from harness.config.allowed import check_targets
from harness.config.cell import Cell, cell_of
from harness.config.compose import arguments, compose
from harness.config.declared import declared, map_paths
from harness.config.overrides import key_of, to_overrides
from harness.config.own_files import check_files, files_outside
from harness.config.places import folder_below
from harness.config.plain import resolved, walk
from harness.config.schema import LARGEST_SEED, NAME, PARTS, check_sizes
from harness.config.untrusted import SHARED, check_shared
from harness.errors import UsageError, in_markdown, one_line, shown, with_known_arguments
from harness.records import record
from harness.records.cache import of_folder
from harness.records.collect import valid_records
from harness.records.files import DamagedError, replace_atomic, write_atomic
from harness.records.named import EXPORTED, find
from harness.records.run_directory import HYDRA, OVERRIDES, RunDirectory
from harness.records.to_try import to_try
from harness.training.checkpoints.dependency import chosen_weights, read_chosen
from tasks.checks import DataError
from tasks.regular_files import read_json, require_regular

if TYPE_CHECKING:
    from torch import Tensor, nn

    from tasks.base import Task

WEIGHTS, CONFIG, RECORD, CARD = "model.safetensors", "config.json", EXPORTED, "README.md"
RECIPE = (*SHARED, "debug")  # keys of a run's overrides; its folders and trusted packages are for the reader to type
BROKEN = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, MemoryError, ArithmeticError)
MOST_TOKENS = 1_000_000  # of a continuation: it is returned whole
LONGEST_PROMPT = 1_000_000  # characters
TEMPERATURES = (1e-3, 1e3)
NO_SAFETENSORS = "exported weights take safetensors: pip install -e '.[export]', or longhaul[export]"


@dataclass(frozen=True, repr=False)
class SavedModel:
    """`model`: in evaluation mode, on the CPU. `task.prepare` and `task.load` open its data, which `load` has not done.

    `config`: the resolved `model`, `task` and `backbone`.
    """

    model: "nn.Module"
    task: "Task"
    record: Mapping[str, Any]
    config: Mapping[str, Any] = field(repr=False)

    def __repr__(self) -> str:
        return f"SavedModel({name_of(self.record)}: {record.summary(self.record)})"

    @with_known_arguments(".")
    def encode(self, inputs: str | Sequence[Any]) -> "Tensor":
        """The tokens (B, N) that the model reads of a text, or of several. Raises UsageError."""
        is_listed = isinstance(inputs, Iterable) and not isinstance(inputs, (bytes, Mapping))
        listed = [inputs] if isinstance(inputs, str) else list(inputs) if is_listed else []
        if not listed:
            raise UsageError("an input, or a list of one or more, is expected")
        if wrong := [entry for entry in listed if entry is None or isinstance(entry, (bytes, Mapping))]:
            raise UsageError(f"an input is a text, or a list of tokens, not {str(wrong[0])[:20]!r}")
        try:
            return self.task.encode(listed)
        except DataError as error:
            raise UsageError(one_line(error)) from error

    @with_known_arguments(".")
    def predict(self, inputs: str | Sequence[Any]) -> list[dict[str, Any]]:
        """What the model says of each input, in the task's words: `class` and `probability`, or `value`.

        Raises UsageError for a task that has no such words.
        """
        import torch

        tokens = self.encode(inputs)
        try:
            with torch.no_grad():
                return self.task.describe(self.model(tokens))
        except DataError as error:
            from tasks.base import Task

            continues = type(self.task).continued is not Task.continued
            hint = "; .generate(prompt) continues a text" if continues else ""
            raise UsageError(f"{one_line(error)}{hint}") from error

    @with_known_arguments(".")
    def generate(
        self,
        prompt: str,
        max_new_tokens: int = 100,
        *,
        temperature: float | None = None,
        top_k: int | None = None,
        seed: int = 0,
    ) -> str:
        """A text and its continuation: the most probable tokens, or with `temperature` or `top_k` random ones.

        Raises UsageError for a model that does not continue texts, and for values that cannot be.
        """
        wholes = {"max_new_tokens": (max_new_tokens, 1, MOST_TOKENS), "seed": (seed, 0, LARGEST_SEED)}
        wholes |= {} if top_k is None else {"top_k": (top_k, 1, LARGEST_SEED)}
        for name, (number, least, most) in wholes.items():
            if not isinstance(number, Integral) or isinstance(number, bool) or not least <= number <= most:
                raise UsageError(f"{name}={number!r}: a whole number between {least} and {most:,} is expected")
        least, most = TEMPERATURES
        if temperature is not None and not (isinstance(temperature, Real) and least <= temperature <= most):
            expected = f"a number between {least:g} and {most:g} is expected"
            raise UsageError(f"temperature={temperature!r}: {expected}; without it, the most probable")
        if isinstance(prompt, str) and len(prompt) > LONGEST_PROMPT:
            raise UsageError(f"a prompt of {len(prompt):,} characters: at most {LONGEST_PROMPT:,} are continued")
        draws = None
        if temperature is not None or top_k is not None:
            draws = {"temperature": float(temperature or 1), "top_k": top_k and int(top_k)}
        try:
            return self.task.continued(self.model, prompt, int(max_new_tokens), draws, int(seed))
        except (ValueError, RuntimeError) as error:
            if isinstance(error, (ValueError, NotImplementedError)) or "memory" in str(error):
                raise UsageError(one_line(error)) from error
            raise


def load(cell: Any, cfg: DictConfig, typed: Mapping[str, str]) -> SavedModel:
    """Of a cell as in `load_run`, an exported folder, or the name of weights to try. Raises UsageError."""
    folder = to_try(cell) or Path(cell)
    # a broken export is named, not taken for its run
    exported = (folder / WEIGHTS).is_file() or (folder / RECORD).exists()
    return load_exported(folder, cfg, typed) if exported else load_run(cell, cfg, typed)


def load_run(cell: Any, cfg: DictConfig, typed: Mapping[str, str]) -> SavedModel:
    """From the run directory below `cfg.paths.outputs`. `cell`: as `records.named.find` takes it. Raises UsageError.

    `typed`: overrides; those of model, task and backbone apply, such as a folder of data outside `paths.data`.
    """
    entries = find(cell, valid_records(cfg.paths.records, cache=of_folder(cfg.paths.outputs))[0], cfg.paths.records)
    if entries["status"] != "done":
        raise UsageError(f"{entries['file']}: the cell ended as {entries['status']}, so it has no chosen weights")
    run_dir = RunDirectory(cell_in(entries).folder(cfg))
    weights = chosen_weights(run_dir, entries)
    again = f"{rerun_command(entries)} trains them again"
    if not weights.exists():
        raise UsageError(f"the weights of {name_of(entries)} are not there ({weights}): {again}")
    try:
        state = read_chosen(weights, entries["cell"]["id"])
    except DamagedError as error:
        raise UsageError(f"{error}: {again}") from error
    return build_saved(
        config_of(entries, run_dir, cfg, typed), lambda model: model.load_state_dict(state), entries, cfg
    )


def config_of(
    entries: Mapping[str, Any], run_dir: RunDirectory, cfg: DictConfig, typed: Mapping[str, str]
) -> dict[str, Any]:
    """The resolved parts that a model is built from, composed again from the run's overrides. Raises UsageError.

    They are not the user's: what only the user sets counts from `typed` and `cfg` alone.
    """
    file = run_dir.path / HYDRA / OVERRIDES
    if not file.exists():
        raise UsageError(f"{file} is not there, so the model cannot be built: {rerun_command(entries)}")
    words = run_dir.read_hydra(OVERRIDES)
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise UsageError(f"{shown(file)}: a list of overrides is expected")
    typed = {key: value for key, value in typed.items() if key.partition(".")[0] in PARTS and "." in key}
    recipe = [word for word in words if key_of(word).split(".")[0] in RECIPE and key_of(word) not in typed]
    mine = to_overrides({"paths.data": cfg.paths.data, "trusted_packages": list(cfg.trusted_packages)})
    mine += [f"{key}={value}" for key, value in typed.items()]
    try:
        check_shared([word for word in recipe if not word.startswith("debug=")], "a recipe")
        composed = compose([*recipe, *mine], shared=recipe)
        id = cell_of(composed, entries["config"].get("dependencies", ())).id
    except (HydraException, OmegaConfBaseException, UsageError, YAMLError) as error:
        raise UsageError(f"{shown(file)}: {yaml_files.reason(error)}") from error
    if id != entries["cell"]["id"]:
        raise UsageError(f"{file}: these overrides are another cell by now; its configuration was changed since")
    return {part: resolved(composed[part]) for part in PARTS}


def build_saved(
    config: Mapping[str, Any],
    fill: "Callable[[nn.Module], object]",
    entries: Mapping[str, Any],
    cfg: DictConfig,
    most_bytes: float = float("inf"),
) -> SavedModel:
    """Build task and model and `fill` in the weights, which must be the tested ones. Raises UsageError.

    `config` has plain values. `most_bytes`: the size of the weights; a larger model is not built.
    """
    import torch

    from harness.config.build import build_model
    from harness.config.instantiate import instantiate
    from harness.training.checkpoints.checkpoint import weights_sha256

    trusted = list(cfg.trusted_packages)
    check_sizes(config)
    task = instantiate(arguments(config["task"]), "task", trusted)
    settings = arguments(config["model"]), arguments(config["backbone"]), trusted, task.backbone_kwargs()
    with torch.device("meta"):
        size = sum(parameter.nbytes for parameter in build_model(*settings).parameters())
    if size > most_bytes:
        raise UsageError(f"the weights do not fit {name_of(entries)}: they have fewer bytes than its {size:,}")
    model = build_model(*settings)
    try:
        fill(model)
    except (RuntimeError, KeyError) as error:
        raise UsageError(f"the weights do not fit {name_of(entries)}: {one_line(error)[:200]}") from error
    if weights_sha256(model) != entries["tested_weights_sha256"]:
        raise UsageError(f"the weights are not those that {name_of(entries)} was tested with")
    return SavedModel(model.eval(), task, entries, config)


def export(saved: SavedModel, folder: Path | None, cfg: DictConfig) -> Path:
    """Write the four files; returns the folder, `<paths.outputs>/exports/<run>` by default. Raises UsageError."""
    try:
        from safetensors.torch import save_model
    except ImportError as error:
        raise UsageError(NO_SAFETENSORS) from error
    folder = folder or folder_below(cfg.paths.outputs, "exports", cell_in(saved.record).path)
    config = {part: without_folders(saved.config[part]) for part in PARTS}
    config["backbone"] |= dict.fromkeys(map_paths(saved.config["backbone"], str))  # all weights are here
    entries = {key: value for key, value in saved.record.items() if key != "file"}
    replace_atomic(folder / WEIGHTS, lambda path: save_model(saved.model, str(path)))
    write_atomic(folder / CONFIG, json.dumps(config, indent=1) + "\n")
    record.write(entries, folder / RECORD)
    write_atomic(folder / CARD, card(entries))
    return folder


def load_exported(folder: Path, cfg: DictConfig, typed: Mapping[str, str]) -> SavedModel:
    """`typed`: overrides; those of `task.<key>` that name files apply. Raises UsageError for a broken folder.

    Load only what you trust: `config.json` decides which of the allowed classes build model and task.
    """
    try:
        from safetensors import SafetensorError, safe_open
        from safetensors.torch import load_model
    except ImportError as error:
        raise UsageError(NO_SAFETENSORS) from error
    try:
        require_regular(folder / WEIGHTS, follow=True)  # a hub's folder has links to its files
        config = read_json(folder / CONFIG, yaml_files.MOST_BYTES, follow=True)
        config = {part: dict(config[part]) for part in PARTS}
        entries = record.read(folder / RECORD, follow=True)
        config["task"] |= {
            key: typed[f"task.{key}"] for key in declared(config["task"]).paths if f"task.{key}" in typed
        }
        config["task"] |= {"data_root": cfg.paths.data} if "data_root" in config["task"] else {}
        for part in PARTS:
            check_targets(walk(config[part], part), list(cfg.trusted_packages))
        check_files(files_outside(config, cfg.paths), typed)
        with safe_open(folder / WEIGHTS, "pt"):  # a file of weights, before a model is built for it
            size = (folder / WEIGHTS).stat().st_size
        return build_saved(config, lambda model: load_model(model, folder / WEIGHTS), entries, cfg, size)
    except (*BROKEN, SafetensorError, record.RecordError) as error:
        raise UsageError(f"{folder}: no exported model ({one_line(error)[:200]})") from error


def without_folders(part: Mapping[str, Any]) -> dict[str, Any]:
    """A part of a configuration in which no file of the user has more than its last name."""
    part = {key: value for key, value in part.items() if key != "budgets"} | map_paths(
        part, lambda path: Path(path).name
    )
    return part | ({"data_root": None} if "data_root" in part else {})


def card(entries: Mapping[str, Any]) -> str:
    """A page about the exported model."""
    cell, data, git, result = entries["cell"], entries["data"], entries["git"], in_markdown(record.summary(entries))
    point = entries["metrics"]["best"] or entries["metrics"]["last"]
    scores = "\n".join(f"| {in_markdown(name)} | {value} |" for name, value in point["test"].items())
    changed = [
        in_markdown(f"{key} is {used}, {of_recipe} in the recipe.")
        for key, (of_recipe, used) in entries["changed"].items()
    ]
    prepare = f"python run.py do=list task={cell['task']}"
    plain = {name: value for name, value in point["test"].items() if NAME.fullmatch(name) and name != "n"}
    tested = {
        "task": {"type": cell["task"].partition("/")[0]},
        "dataset": {"type": cell["task"], "name": cell["task"], "split": "test"},
        "metrics": [{"type": name, "value": value} for name, value in plain.items()],
    }
    head = {
        "library_name": "longhaul",
        "tags": ["longhaul", "attention", cell["model"]],
        "model-index": [{"name": f"{cell['model']} on {cell['task']}", "results": [tested]}],
    }
    return f"""---
{yaml_files.text_of(head)}---

# {cell["model"]} on {cell["task"]}

One run of the recipe `{cell["protocol"]}` at the budget `{cell["budget"]}`, seed {cell["seed"]}: {result}.
{" ".join(changed) or "The recipe is unchanged."}

| score on the test split | |
| --- | ---: |
{scores}

Data: {in_markdown(data["source"])}, fingerprint {in_markdown(data["fingerprint"][:16])}.
`{prepare}` names their licence.
Code: commit {in_markdown(str(git["sha"]))}{" with changes" if git["dirty"] else ""}.
Digest of the source: {entries.get("code_sha256")}.

```python
import longhaul

trained = longhaul.load("this folder")  # trained.model, trained.task, trained.record
```
"""


def cell_in(entries: Mapping[str, Any]) -> Cell:
    return Cell(entries["cell"]["id"], entries["config"])


def name_of(entries: Mapping[str, Any]) -> str:
    return str(cell_in(entries))


def rerun_command(entries: Mapping[str, Any]) -> str:
    """The command that runs the cell again."""
    names = " ".join(f"{key}={entries['cell'][key]}" for key in ("model", "task", "protocol", "budget", "seed"))
    return f"python run.py {names} rerun=all"
