"""Overrides -> configuration, and the names that `conf/` holds.

`run.py` composes through hydra.main; sweeps and tests compose through here. Both see the same files and schema.
"""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import hydra
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

from harness.config.schema import register

ROOT = Path(__file__).resolve().parents[2]
CONF = ROOT / "conf"
# groups whose options the harness chooses among by their full path below the group
NAMED = (
    *("model", "task", "protocol", "budget", "table", "figure"),
    *("trainer", "resources", "cluster", "hydra/launcher", "logger", "debug"),
)


def compose(overrides: Sequence[str] = (), search: Sequence[str] = ()) -> DictConfig:
    """The configuration of these overrides. `search`: further folders of configuration, as `--config-dir` names them.

    Raises Hydra's own errors; `harness.commands.cli` turns them into one line.
    """
    register()
    overrides = with_protocol(overrides, search)
    if search:
        overrides = [f"hydra.searchpath=[{','.join(search)}]", *overrides]
    with outside_the_application(), hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        return hydra.compose("config", overrides=list(overrides))


def with_protocol(overrides: Sequence[str], search: Sequence[str] = ()) -> list[str]:
    """The same, and the protocol that the typed task names as its own (`protocol:` in its yaml) if none is typed."""
    typed = {key: value for key, equals, value in (word.partition("=") for word in overrides) if equals}
    own = None if "protocol" in typed else own_protocol(typed.get("task", ""), search)
    return [*overrides, *([f"protocol={own}"] if own else [])]


def own_protocol(task: str, search: Sequence[str] = ()) -> str | None:
    """None for a task that names none, and for no task."""
    files = (Path(folder) / "task" / f"{task}.yaml" for folder in (*search, CONF))
    found = next((file for file in files if file.is_file()), None)
    return found and OmegaConf.load(found).get("protocol")


def with_model(cfg: DictConfig, name: str) -> DictConfig:
    """The same configuration with another model of `conf/model/`; composing it anew takes a hundred times as long."""
    cfg = cfg.copy()
    cfg.model = OmegaConf.load(CONF / "model" / f"{name}.yaml")
    return cfg


@contextlib.contextmanager
def outside_the_application() -> Iterator[None]:
    """Lend Hydra's one global place, which a running hydra.main holds, to a composition of our own."""
    place = GlobalHydra.instance()
    application, place.hydra = place.hydra, None
    try:
        yield
    finally:
        place.hydra = application


def search_path() -> list[str]:
    """Folders of configuration that the running command added (`--config-dir`, `hydra.searchpath`), as `compose` takes.

    Empty outside a Hydra application.
    """
    if not GlobalHydra.instance().is_initialized():
        return []
    sources = GlobalHydra.instance().config_loader().get_search_path().get_path()
    own = {"hydra", "main", "schema"}
    return [source.path for source in sources if source.provider not in own and source.path]


def options(group: str) -> Iterator[tuple[str, str]]:
    """(name, one-line description) of every option of a group. The description is the file's first comment line.

    `protocol/` and `budget/` keep a recipe's numbers for each task in a folder of its name: those are no options.
    """
    folder = CONF / group
    for path in sorted(folder.rglob("*.yaml")):
        name = path.relative_to(folder).with_suffix("").as_posix()
        if group in ("protocol", "budget") and "/" in name:
            continue
        yield name, describe(path)


def describe(path: Path) -> str:
    """First comment line of a yaml that is not a directive."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            text = line.strip()
            if not text.startswith("#"):
                break
            if not text.startswith("# @"):
                return text.lstrip("# ").strip()
    return ""


def recipes(task: str) -> list[str]:
    """Protocols that have a recipe for a task."""
    return sorted(name for name, _ in options("protocol") if (CONF / "protocol" / name / f"{task}.yaml").is_file())
