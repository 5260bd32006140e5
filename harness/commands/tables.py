"""A typed table is checked as a whole before any of its cells is planned or run, as do=report checks it."""

from collections.abc import Sequence

from harness.config.compose import folders, names_in
from harness.config.overrides import typed_values
from harness.config.sweep import Command
from harness.config.table_files import ALL
from harness.errors import UsageError, did_you_mean


def check_tables(commands: Sequence[Command]) -> None:
    """Raises UsageError for a table whose page could not be made from its cells, and for an unknown protocol."""
    typed = {(typed_values(command.overrides).get("table", ALL), command.cfg.paths.paper) for command in commands}
    if all(name in (ALL, "null") for name, _ in typed):
        return
    from harness.report.spec.table import TableSpec  # with the report's modules, which a cell without a table spares
    from harness.report.spec_files import load_table

    protocols = set(names_in("protocol"))
    for name, paper in sorted(typed):
        spec = load_table(name, folders(), paper) if name not in (ALL, "null") else None
        rows = spec.rows if isinstance(spec, TableSpec) else {}
        for label, row in rows.items():
            if row.protocol not in protocols:
                hint = did_you_mean(row.protocol, protocols)
                raise UsageError(f"conf/table/{name}.yaml: rows.{label}: there is no protocol '{row.protocol}': {hint}")
