"""Records of a table of three rows with searched learning rates, and its spec."""

from harness.config.search import Trial
from harness.report.spec.table import TableSpec
from helpers import synthetic

RECIPE = 1e-3  # of the reduced ListOps


def runs(model, rate, scores, *, first=1, **changes):
    """Records of one row at one learning rate."""
    made = []
    for seed, score in enumerate(scores, first):
        entries = synthetic.record(model, "lra/listops", seed, score, budget="reduced", **changes)
        entries["config"]["train"]["optimizer"] = {"lr": rate}
        if rate != RECIPE:
            entries["changed"] = {"train.optimizer.lr": [RECIPE, rate]}
        made.append(with_id(entries))
    return made


def with_id(entries):
    entries["cell"]["id"] = synthetic.identity(entries["config"])
    return entries


def trials(model, scores, seed=101):
    """{learning rate: validation score, None for a failed trial}; the loss is 1 less the score."""
    made = []
    for rate, score in scores.items():
        (entries,) = runs(model, rate, [score or 0.5], first=seed, status="done" if score else "nan")
        entries["config"]["train"]["trial"] = True
        entries["changed"]["train.trial"] = [None, True]
        for point in (entries["metrics"] or {}).values():
            point.pop("test", None)
            point["val"]["loss"] = round(1 - score, 6)
        made.append(with_id(entries))
    return made


GRID = (3.3e-4, 1e-3, 3.3e-3, 0.0109)
TABLE_SPEC = TableSpec(
    name="own", title="own", ledger=None, protocol="skyformer", control=["no_mixing"], reference=["vanilla"],
    seeds=[1, 2, 3], rows={"softmax": "vanilla", "control": "no_mixing", "LAVO": "lavo"},
    columns={"ListOps": {"task": "lra/listops", "metric": "acc", "unit": "%", "higher_is_better": True}},
)  # fmt: skip


def records(vanilla=(0.5, 0.9, 0.6), lavo=(0.3, 0.4, 0.8, None)):
    return [
        *trials("vanilla", dict(zip(GRID, vanilla, strict=False))),
        *trials("lavo", dict(zip(GRID, lavo, strict=False))),
        *runs("vanilla", RECIPE, [0.90, 0.91, 0.92]),
        *runs("lavo", RECIPE, [0.40, 0.41, 0.42]),
        *runs("lavo", 3.3e-3, [0.80, 0.81, 0.82]),
        *runs("no_mixing", RECIPE, [0.20, 0.22, 0.21]),
    ]


class Trials:
    """Scores of trials by their learning rates (`3.3e_4`), and None for others."""

    def __init__(self, **by_rate):
        self.by_rate = {float(rate.replace("_", "-")): score for rate, score in by_rate.items()}

    def __call__(self, planned):
        score = self.by_rate.get(planned.cfg.train.optimizer.lr)
        return None if score is None else Trial(score)
