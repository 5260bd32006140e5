"""The verbs of `do=`, with the module that runs each."""

VERBS = {
    "train": "harness.commands.train",
    "prepare": "harness.commands.prepare",
    "baselines": "harness.commands.baselines",
    "plan": "harness.commands.plan",
    "status": "harness.commands.status",
    "compare": "harness.commands.compare",
    "export": "harness.commands.export",
    "curves": "harness.commands.curves",
    "check": "harness.commands.check",
    "report": "harness.commands.report",
    "bench": "harness.commands.bench",
    "verify": "harness.commands.verify",
    "list": "harness.commands.list",
}
