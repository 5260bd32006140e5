"""do=bench table=... and figure=...: the measurements behind a table or figure, one per run.

python run.py do=bench table=luna/t2
python run.py do=bench table=luna/t2 lengths=256,512       # at other lengths; the table does not show them
python run.py do=bench table=lavo/t10 bench.run=recompute  # one of its runs
"""

from collections.abc import Sequence

from omegaconf import DictConfig

from harness.bench.command import keep, measure
from harness.bench.subjects import Subject, device_type
from harness.config.compose import compose, folders, search_path
from harness.config.overrides import key_of, typed_values
from harness.config.untrusted import check_shared
from harness.errors import UsageError, did_you_mean
from harness.report.spec.measured import MeasuredRows
from harness.report.spec.table import TableSpec
from harness.report.spec_files import load_figure, load_table

COMMAND_KEYS = ("do", "table", "figure", "model", "bench.models", "bench.run")  # keys that choose runs and rows
RUN_KEYS = ("task", "protocol", "bench.what", "bench.axis", "bench.axis_values")  # keys that a run sets


def asked_for(overrides: Sequence[str]) -> tuple[str, str] | None:
    """(`table` or `figure`, its name) as typed; None without either."""
    typed = typed_values(overrides)
    return next(((group, typed[group]) for group in ("table", "figure") if typed.get(group, "null") != "null"), None)


def measure_asked(cfg: DictConfig, overrides: Sequence[str], group: str, name: str) -> int:
    """Measure the runs of a table or figure in turn. Raises UsageError, before the first, if one cannot be measured."""
    spec, typed = spec_of(cfg, group, name), typed_values(overrides)
    if (chosen := cfg.bench.run) not in (None, *spec.runs):
        raise UsageError(f"bench.run: {group}={spec.name} has no '{chosen}': {did_you_mean(chosen, spec.runs)}")
    runs = {label: run for label, run in spec.runs.items() if chosen in (None, label)}
    if excluded := [key.removeprefix("bench.") for key in RUN_KEYS if key in typed]:
        raise UsageError(f"{excluded[0]}=: {group}={name} says itself what it measures; leave it out")
    plans = {run: subjects_of(spec, run, list(cfg.bench.models)) for run in runs}
    kept = [override for override in overrides if key_of(override) not in COMMAND_KEYS]
    for label, run in runs.items():
        if run.needs == "cuda" and device_type(cfg) != "cuda":
            print(f"{name}, {label}: left out, it needs a GPU (python run.py do=bench {group}={name} on one)")
            continue
        run_overrides = run.overrides
        if "bench.lengths" in typed:
            run_overrides = [override for override in run_overrides if key_of(override) != "bench.lengths"]
        check_shared(run_overrides, f"{name}, runs, {label}")
        combined = [*run_overrides, *kept]  # the last value of a key counts, so typed values win
        composed = compose([*combined, f"model={plans[label][0].model}"], search_path(), shared=run_overrides)
        keep(measure(composed, combined, plans[label], spec.reference), cfg)
    return 0


def spec_of(cfg: DictConfig, group: str, name: str) -> MeasuredRows:
    """Raises UsageError for a table or figure without runs."""
    load = load_table if group == "table" else load_figure
    if name == "all":
        raise UsageError(f"do=bench takes one {group}: {group}=luna/t2")
    spec = load(name, folders(), cfg.paths.paper)
    if isinstance(spec, MeasuredRows):
        return spec
    shown = f"python run.py do=report {group}={name}"
    if isinstance(spec, TableSpec):
        if points := [column.bench for column in spec.columns.values() if column.bench]:
            lengths = ",".join(str(n) for n in sorted({point.length for point in points}))
            models = ",".join(dict.fromkeys(row.model for row in spec.rows.values()))
            measures = ",".join(sorted({point.what for point in points}))
            command = f"python run.py do=bench model={models} lengths={lengths} what={measures}"
            raise UsageError(f"{group}={name} names the measurement that it shows; to make another: {command}")
        raise UsageError(f"{group}={name} has no measurements: its numbers come from records ({shown})")
    raise UsageError(f"{group}={name} has no measurements: nothing in it is timed ({shown})")


def subjects_of(spec: MeasuredRows, run: str, models: Sequence[str]) -> list[Subject]:
    """The rows of a run; with typed models, theirs and the reference. Raises UsageError for a model without a row."""
    rows = spec.rows_of(run)
    if models:
        with_rows = {row.model for row in rows.values()}
        if unknown := [model for model in models if model not in with_rows]:
            raise UsageError(f"model={unknown[0]}: no row of {spec.name}: {did_you_mean(unknown[0], with_rows)}")
        rows = {label: row for label, row in rows.items() if row.model in models or label == spec.reference}
    return [Subject(label, row.model, row.set) for label, row in rows.items()]
