"""The published cost of a recipe: GPU-hours that the tables of `conf/table/` state for a run of a task."""

import functools

from omegaconf import OmegaConf

from harness.config.sweep import task_columns
from harness.config.table_rows import row, row_hours, runs, tables


@functools.cache
def published_hours(task: str, protocol: str) -> float | None:
    """GPU-hours of one run of a task, from the first table that has the task under this protocol."""
    for _, content in tables(about_others=True):
        table = OmegaConf.create(content)
        columns = task_columns(table).values() if table.get("gpu_hours") else ()
        rows = [row(raw, table.protocol) for raw in table.rows.values()] if columns else []
        if any(column.task == task for column in columns) and any(row.protocol == protocol for row in rows):
            return row_hours(table.gpu_hours, protocol) / runs((c.task, c.get("set", {})) for c in columns)
    return None
