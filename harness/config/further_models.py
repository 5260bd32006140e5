"""Models beyond a table's rows: `every` in a table adds a row for each that declares one of these patterns."""

from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from harness.config.compose import OWN_CLASS, names_in, option_config
from harness.config.table_rows import row
from harness.errors import UsageError


def further_models(table: DictConfig) -> list[str]:
    """Readable models with one of the patterns that are neither in `rows` nor in `without`."""
    named = {row(raw, table.protocol).model for raw in table.rows.values()} | set(table.get("without") or ())
    models = [name for name in names_in("model") if name not in {*named, *OWN_CLASS}]
    return [name for name in models if set(table.every) & patterns_of(name)]


def patterns_of(model: str) -> set[str]:
    """The patterns that a model of `conf/model/` declares; none if the model cannot be read."""
    from harness.config.instantiate import target

    try:
        built = target({"_target_": option_config("model", model)["_target_"]}, "model")
    except (OmegaConfBaseException, UsageError, KeyError):
        return set()
    return {str(pattern) for pattern in getattr(built.func, "patterns", ())}


def reason_it_cannot_run(cfg: DictConfig, model: str, table: DictConfig) -> str:
    """The reason why a cell of a model outside the table's rows cannot run; empty if it can."""
    if model in {row(raw, table.protocol).model for raw in table.rows.values()}:
        return ""
    from harness.config.build import on_meta

    try:
        on_meta(cfg)
    except UsageError as error:
        return str(error)
    return ""
