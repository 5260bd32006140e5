"""do=bench table=... and figure=...: the measurements that a table or figure shows, one for each of its runs.

python run.py do=bench table=luna/t2
python run.py do=bench table=luna/t2 lengths=256,512       # of other lengths, which the table does not show
python run.py do=bench table=lavo/t10 bench.run=recompute  # one of its runs
"""

from collections.abc import Sequence

from omegaconf import DictConfig

from harness.bench.command import keep, measure
from harness.bench.subjects import Subject, device_type
from harness.config.compose import compose, folders, search_path
from harness.config.overrides import key_of, typed_values
from harness.errors import UsageError, did_you_mean
from harness.report.spec.measured import MeasuredRows, Run
from harness.report.spec.table import TableSpec
from harness.report.spec_files import load_figure, load_table

NOT_OF_A_RUN = ("do", "table", "figure", "model", "bench.models", "bench.run")  # of what is typed
OF_THE_RUN = ("task", "protocol", "bench.what", "bench.axis", "bench.axis_values")  # a run says these itself


def asked_for(overrides: Sequence[str]) -> tuple[str, str] | None:
    """The `table` or `figure` that was typed, and its name."""
    typed = typed_values(overrides)
    return next(((group, typed[group]) for group in ("table", "figure") if typed.get(group, "null") != "null"), None)


def measure_asked(cfg: DictConfig, overrides: Sequence[str], group: str, name: str) -> int:
    """Measure the runs of a table or figure, one after another. Raises UsageError before the first if one cannot be."""
    spec, typed = spec_of(cfg, group, name), typed_values(overrides)
    runs = chosen_runs(spec, cfg.bench.run, group)
    for key in OF_THE_RUN:
        if key in typed:
            raise UsageError(
                f"{key.removeprefix('bench.')}=: {group}={name} says itself what it measures; leave it out"
            )
    plans = {run: subjects_of(spec, run, list(cfg.bench.models)) for run in runs}
    for run, one in runs.items():
        if one.needs == "cuda" and device_type(cfg) != "cuda":
            print(f"{name}, {run}: left out, it needs a GPU (python run.py do=bench {group}={name} on one)")
            continue
        lengths = "bench.lengths" in typed
        own = [each for each in one.overrides if not (lengths and key_of(each) == "bench.lengths")]
        kept = [each for each in overrides if key_of(each) not in NOT_OF_A_RUN]
        said = [*own, *kept]  # what is typed comes last and counts
        composed = compose([*said, f"model={plans[run][0].model}"], search_path())
        keep(measure(composed, said, plans[run], spec.reference), cfg)
    return 0


def spec_of(cfg: DictConfig, group: str, name: str) -> MeasuredRows:
    """Raises UsageError for a table or figure that shows no measurement of its own."""
    load = load_table if group == "table" else load_figure
    if name == "all":
        raise UsageError(f"do=bench takes one {group}: {group}=luna/t2")
    spec = load(name, folders(), cfg.paths.paper)
    if isinstance(spec, MeasuredRows):
        return spec
    shown = f"python run.py do=report {group}={name}"
    if isinstance(spec, TableSpec):
        points = [column.bench for column in spec.columns.values() if column.bench]
        if points:
            lengths = ",".join(str(n) for n in sorted({point.length for point in points}))
            models = ",".join(dict.fromkeys(row.model for row in spec.rows.values()))
            what = ",".join(sorted({point.what for point in points}))
            command = f"python run.py do=bench model={models} lengths={lengths} what={what}"
            raise UsageError(f"{group}={name} names the measurement that it shows; to make another: {command}")
        raise UsageError(f"{group}={name} has no measurements: its numbers come from records ({shown})")
    raise UsageError(f"{group}={name} has no measurements: nothing in it is timed ({shown})")


def chosen_runs(spec: MeasuredRows, name: str | None, group: str) -> dict[str, Run]:
    if name is None:
        return dict(spec.runs)
    if name not in spec.runs:
        raise UsageError(f"bench.run: {group}={spec.name} has no '{name}': {did_you_mean(name, spec.runs)}")
    return {name: spec.runs[name]}


def subjects_of(spec: MeasuredRows, run: str, models: Sequence[str]) -> list[Subject]:
    """The rows of a run, or those of the typed models, with the reference. Raises UsageError for one without a row."""
    rows = spec.rows_of(run)
    if models:
        known = {row.model for row in rows.values()}
        if unknown := [model for model in models if model not in known]:
            raise UsageError(f"model={unknown[0]}: no row of {spec.name}: {did_you_mean(unknown[0], known)}")
        rows = {label: row for label, row in rows.items() if row.model in models or label == spec.reference}
    return [Subject(label, row.model, row.set) for label, row in rows.items()]
