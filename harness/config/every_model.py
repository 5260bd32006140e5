"""Rows of a table that has `every` model with some patterns: those that its yaml does not name.

The yaml's rows give models their names and settings. Every further model of `conf/model/` whose class declares one of
the patterns is a row, too, and so is a model that is typed. What such a model cannot do is found out without memory and
data, before anything is run. Torch is loaded for it.
"""

from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from harness.config.compose import option_config, options
from harness.config.table_rows import row
from harness.errors import UsageError

NO_MODEL = ("custom",)  # an option that is complete with what the user types


def further_models(table: DictConfig) -> list[str]:
    """Models with one of the patterns that neither `rows` nor `without` names. A model that cannot be read is none."""
    known = {row(raw, table.protocol).model for raw in table.rows.values()} | set(table.get("without") or ())
    wanted = set(table.every)
    return [name for name, _ in options("model") if name not in {*known, *NO_MODEL} and wanted & patterns_of(name)]


def patterns_of(model: str) -> set[str]:
    """The patterns that a model of `conf/model/` declares; none of a model that cannot be read."""
    from harness.config.instantiate import target

    try:
        built = target({"_target_": option_config("model", model)["_target_"]}, "model")
    except (OmegaConfBaseException, UsageError, KeyError):
        return set()
    return {str(pattern) for pattern in getattr(built.func, "patterns", ())}


def why_not(cfg: DictConfig, model: str, table: DictConfig) -> str:
    """Why a composed cell cannot run, of a model that the table's rows do not name; empty if it can."""
    if model in {row(raw, table.protocol).model for raw in table.rows.values()}:
        return ""
    from harness.config.build import on_meta

    try:
        on_meta(cfg)
    except UsageError as error:
        return str(error)
    return ""
