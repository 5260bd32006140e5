"""Longhaul from Python: each function does what a command of `run.py` does, and returns data.

    import longhaul

    longhaul.run("model=lavo", "task=lra/listops", budget="smoke")      # python run.py model=lavo ...
    longhaul.run(model=longhaul.attention(Mixer), task="lra/listops")    # your own nn.Module
    longhaul.plan("table=lavo/t11", budget="reduced")                   # do=plan, as a DataFrame
    longhaul.records(task="lra/listops")                                # all records, as a DataFrame
    trained = longhaul.load("a1d2790a")                                 # model with its weights, task, record
    longhaul.load("demo/lavo").predict("[MAX 2 [MIN 4 7 ] 9 ]")         # trained weights that come with the project
    longhaul.compare("93023c46", "7cb0c52e")                            # do=compare
    longhaul.report("lavo/t11")                                         # do=report, as Markdown, a DataFrame, a plot
    longhaul.figure("probes/state")                                     # one of the figures, as a PNG
    longhaul.status(), longhaul.curves("task=lra/listops")              # do=status, do=curves, as data and a picture
    longhaul.predictions(task="lra/listops")                            # scores of each test example, as a DataFrame
    longhaul.outputs("a1d2790a")                                        # do=outputs: forecasts, texts, as a DataFrame
    longhaul.check()                                                    # do=check, as a DataFrame
    longhaul.verify(model="lavo"), longhaul.bench(model=["lavo"])       # do=verify, do=bench, as DataFrames
    longhaul.measurements()                                             # what do=bench measured, as a DataFrame

Overrides are strings as on the command line, or keywords: `seed=[1, 2]` sweeps.
"""

from typing import Any

from harness.errors import UsageError, did_you_mean
from harness.records.provenance import version
from longhaul.api import compare, export, load, outputs, plan, records, run
from longhaul.reports import figure, measurements, report
from longhaul.verbs import bench, check, curves, predictions, status, verify
from longhaul.words import attention

__version__ = version()
__all__ = [
    "UsageError",
    "attention",
    "bench",
    "check",
    "compare",
    "curves",
    "export",
    "figure",
    "load",
    "measurements",
    "outputs",
    "plan",
    "predictions",
    "records",
    "report",
    "run",
    "status",
    "verify",
]


def __getattr__(name: str) -> Any:
    raise AttributeError(f"module 'longhaul' has no attribute '{name}': {did_you_mean(name, __all__)}")
