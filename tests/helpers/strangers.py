"""Hostile configurations by kind, written from the promises of SECURITY.md alone; tests.helpers.hostile has those of
`hydra`, `paths` and `logger`, which no shared file may set at all.

A text is the content of a shared file for all keys. A `Case` has files of its own. CANARY, VICTIM, OUTSIDE and SECRET
stand for what `tests.helpers.stranger` names.
"""

import json
from typing import Any

from tests.helpers.hostile import REFUSED
from tests.helpers.stranger import GLOBAL, SHARED, Case

SPAWN = "{_target_: distutils.spawn.spawn, cmd: [touch, CANARY]}"
SYSTEM = "{_target_: os.system, command: 'touch CANARY'}"
LATTE = "_target_: models.attention.latte.Latte"
SGD = "_target_: torch.optim.SGD, lr: 0.1"


def option(path: str, text: str, *typed: str) -> Case:
    """A file in one of the groups of options, which the user chooses."""
    group, _, name = path.rpartition("/")
    return Case({f"{path}.yaml": text}, typed or (f"{group}={name}",))


TABLE = {
    "title": "x", "ledger": None, "protocol": "skyformer", "control": "no_mixing", "reference": "vanilla",
    "seeds": [1], "chance": True, "rows": {"a": {"model": "latte"}},
    "columns": {"b": {"task": "lra/listops", "metric": "acc", "unit": "%", "decimals": 1, "higher_is_better": True}},
}  # fmt: skip


def table(**changed: Any) -> Case:
    """A table, which the user plans or trains. JSON is yaml, too."""
    return Case({"table/shared.yaml": json.dumps(TABLE | changed)}, ("table=shared",))


def row(**settings: Any) -> Case:
    return table(rows={"a": {"model": "latte", "set": settings}})


def column(**changed: Any) -> Case:
    return table(columns={"b": TABLE["columns"]["b"] | changed})


TARGETS = [
    *(f"model: {{_target_: {target}}}" for target in (
        "[os.system]", "{a: os.system}", "7", "''", "null", "true", "os", "' os.system'", "os.system.", "..os.system",
        "'os.system\\n'", '"\\u043es.system"', '"os.\\u200bsystem"', '"models.attention.latte.Latte\\0"', "os/system",
        "models.attention.latte.Latte.__init__.__globals__", "models.attention.latte.Latte.__class__",
        "models.attention.latte.Latte.__subclasses__", "models.attention.latte.torch.hub.load",
        "models.attention.base.nn.Module.__reduce__", "models.attention.latte.Latte.load_state_dict",
        "models.ops.torch.utils.cpp_extension.load", "tasks.lra.listops.ListOps", "harness.training.run_cell.run_cell",
        "harness.commands.train.run_all", "tests.helpers.strangers.option", "run.main", "longhaul.run",
        "builtins.__import__", "functools.partial", "operator.attrgetter", "ctypes.CDLL", "pty.spawn", "code.interact",
        "webbrowser.open", "antigravity.geohash", "pickle.load", "torch.nn.Module", "torch.nn.Linear",
    )),
    *(f"train: {{optimizer: {{_target_: {target}}}}}" for target in (
        "torch.optim.optimizer.torch.save", "torch.optim.SGD.load_state_dict", "torch.optim.Optimizer",
        "torch.optim.swa_utils.AveragedModel", "torch.optim.lr_scheduler.LambdaLR", "torch.optim._functional.sys.exit",
    )),
    *(f"train: {{schedule: {{_target_: torch.optim.lr_scheduler.{target}}}}}" for target in (
        "LambdaLR, lr_lambda: os.system", f"LambdaLR, lr_lambda: {SYSTEM}", "SequentialLR, schedulers: [os.system]",
        f"ChainedScheduler, schedulers: [{SPAWN}]", "types.FunctionType, code: x", "partial, func: os.system",
        "warnings.sys.exit",
    )),
    f"model: {{{LATTE}, _args_: [{SPAWN}]}}",
    f"model: {{{LATTE}, _args_: [os.system], _partial_: false}}",
    f"model: {{{LATTE}, _partial_: {SYSTEM}}}",
    f"model: {{{LATTE}, _recursive_: true, x: {SPAWN}}}",
    f"model: {{{LATTE}, _convert_: object, _mode_: x, x: {{y: [{SYSTEM}]}}}}",
    f"model: {{{LATTE}, dropout: {SYSTEM}}}",
    f"model: {{_target_: os.getcwd, {LATTE}}}",
    f"model: {{{LATTE}, '_target_': os.getcwd}}",
    f"backbone: {{norm: {SPAWN}}}\nbackbone@model: {{x: 1}}",
    f"train: {{optimizer: {{{SGD}, foreach: {SYSTEM}}}}}",
    f"train: {{optimizer: {{{SGD}, params: [{SPAWN}]}}}}",
    f"train: {SPAWN}",
    f"seed: {SYSTEM}",
    f"defaults: [{SYSTEM}]",
    SPAWN[1:-1].replace(", ", "\n"),
]  # fmt: skip

TAGS = [
    "model: !!python/object/apply:os.system ['touch CANARY']",
    "model: !!python/object/new:os.system ['touch CANARY']",
    "model: !!python/name:os.system",
    "model: !!python/module:antigravity",
    "model: {x: !!python/tuple [1]}",
    "%TAG ! tag:yaml.org,2002:python/\n---\nmodel: !object/apply:os.system ['touch CANARY']",
    "model: !<tag:yaml.org,2002:python/object/apply:os.system> ['touch CANARY']",
    "model: !include VICTIM",
    "model: !ENV '${SECRET}'",
    "model: {x: !!binary 'dG91Y2g='}",
    "model: !!set {a, b}",
    "? {a: 1}\n: 2",
    "? [_target_]\n: os.system",
    "null: 1",
    "1: 2",
    "model: {yes: 1}",
    "model: {x: 2001-01-01, y: 1:30:00, z: 0o17, w: 0x1F}",
    "seed: 1\n---\nseed: 2",
    "seed: 1\nseed: 2",
    f"base: &base {SPAWN}\nmodel: {{<<: *base}}",
    f"base: &base {{{SYSTEM[1:-1]}}}\nmodel: {{x: [{{<<: [*base, *base]}}]}}",
    'model: {"\\x5ftarget_": os.system, "command": "touch CANARY"}',
    "model: {x: .nan, y: .inf, z: 1e999}",
    "model:\n\t_target_: os.system",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
]

INTERPOLATIONS = [
    *(f"model: {{x: '{text}'}}" for text in (
        "${oc.create:${oc.decode:\"{_target_: os.system, command: touch CANARY}\"}}",
        "${oc.${model.y}:HOME}", "${oc.env:${model.y}}", "${oc.decode:${oc.env:SECRET}}", "${oc.env:SECRET,null}",
        "${oc.select:oc.env}", "${oc.deprecated:model.name}", "${oc.dict.values:model}", "${oc.dict.keys:model}",
        "${hydra:runtime.cwd}", "${hydra:job.env_set}", "${hydra:overrides.task}", "${now:%Y}", "${eval:1+1}",
        "${python:os.getcwd()}", "${resolve:model}", "${file:VICTIM}", "${read:VICTIM}", "${shell:touch CANARY}",
        "${__import__(\"os\").system(\"touch CANARY\")}", "${.}", "${..}", "${...paths.outputs}", "${}", "${ }",
        "${model}", "${paths}", "${model.x}", "${a${model.y}}", "$(touch CANARY)", "`touch CANARY`", "$SECRET",
        "${SECRET}", "%(SECRET)s", "{SECRET}", "~/.ssh/id_rsa", "file://VICTIM", "@VICTIM", "; touch CANARY",
        "| touch CANARY", "\\${oc.env:SECRET}", "\\\\${oc.env:SECRET}", "${oc.select:\"model.y\",${oc.env:SECRET}}",
        "${oc.create:{trusted_packages:[os]}}", "${default_protocol:../../x}", "${default_protocol:${oc.env:SECRET}}",
    )),
    "'${oc.env:SECRET}': 1",
    "model: {'${oc.env:SECRET}': 1}",
    "model: {name: '${oc.env:SECRET}'}",
    "seed: '${oc.env:SECRET}'",
    "train: {max_steps: '${oc.decode:\"4${oc.env:SECRET}\"}'}",
    "trusted_packages: ['${oc.decode:os}']",
    "trusted_packages: '${model.y}'\nmodel: {y: [os, distutils]}",
    f"model: '${{backbone.spare}}'\nbackbone: {{spare: {SPAWN}}}",
    f"model: {{x: '${{oc.select:task.spare.0}}'}}\ntask: {{spare: [{SYSTEM}]}}",
    f"logger: '${{task.spare}}'\ntask: {{spare: {{x: {SPAWN}}}}}",
    "paths: {outputs: '${oc.env:HOME}/x'}",
    "paths: {outputs: '${paths.paper}/../../../../OUTSIDE'}",
]  # fmt: skip

DEFAULTS = [
    *(f"defaults: [{entry}]" for entry in (
        "{override /hydra/launcher: submitit_local}", "{override /hydra/sweeper: basic}", "{override /hydra/output: x}",
        "{override /hydra/job_logging: default}", "{override /hydra/hydra_logging: default}", "{/hydra: config}",
        "/../x", "/etc/passwd", "OUTSIDE/victim", "'file://OUTSIDE/victim'", "'pkg://os'", "'structured://os'",
        "'${oc.env:SECRET}'", "{/model: '${oc.env:SECRET}'}", "{/model@trusted_packages: latte}", "[shared]", "7",
        "{/model@hydra.job.env_set: latte}", "{/model@paths: latte}", "{/model@_global_.cluster: latte}", "null",
        "{/model@model.../x: latte}", "{'/model@': latte}", "{/model: [latte, ../../x]}", "{override /model: os}",
        "{optional /local: ../../x}", "'shared@model'", "'/x/shared@paths'", "_self_, _self_", "{/task: null}",
    )),
    "defaults: x",
    "defaults: {a: b}",
    "defaults: [_self_, {/model: lavo}]\nmodel: {_target_: os.getcwd}",
    *(Case({SHARED: f"# @package {package}\n{text}"}) for package, text in (
        ("hydra.job.env_set", "PATH: OUTSIDE"), ("hydra", "run: {dir: OUTSIDE}"), ("trusted_packages", "[os]"),
        ("paths", "records: OUTSIDE"), ("_global_.paths", "outputs: OUTSIDE/more"), ("cluster", "setup: [touch]"),
        ("hydra.callbacks.x", SPAWN[1:-1].replace(", cmd", "\ncmd")), ("hydra.searchpath", "- file://OUTSIDE"),
        ("../../x", "a: 1"), ("_group_", "trusted_packages: [os]"), ("_global_._global_", "trusted_packages: [os]"),
        ("logger.x", "_target_: os.system\ncommand: touch CANARY"), ("${oc.env:SECRET}", "a: 1"), ("", "a: 1"),
    )),
    Case({SHARED: f"{GLOBAL}defaults: [more@model]", "x/more.yaml": SPAWN[1:-1].replace(", cmd", "\ncmd")}),
    Case({SHARED: f"{GLOBAL}defaults: [/x/more@hydra.job]", "x/more.yaml": "env_set: {PATH: OUTSIDE}"}),
    Case({SHARED: f"{GLOBAL}defaults: [/x/more@_global_]", "x/more.yaml": "trusted_packages: [os]"}),
    option("local/default", f"{GLOBAL}trusted_packages: [os]\nmodel: {{x: {SYSTEM}}}", "seed=2"),
    option("local/mine", f"{GLOBAL}trusted_packages: [os]\nmodel: {{x: {SYSTEM}}}", "local=mine"),
    option("cluster/mine", "setup: ['touch CANARY']\nfolder: OUTSIDE"),
    Case({"config.yaml": f"trusted_packages: [os]\nmodel: {{x: {SYSTEM}}}"}, ("seed=2",)),
    Case({"hydra/config.yaml": "job: {env_set: {PATH: OUTSIDE}}"}, ("seed=2",)),
    option("hydra/launcher/mine", "_target_: os.system\ncommand: touch CANARY", "hydra/launcher=mine"),
    option("hydra/job_logging/mine", "version: 1\nhandlers: {f: {class: logging.FileHandler, filename: CANARY}}",
           "hydra/job_logging=mine"),
    option("hydra/help/mine", "template: '${oc.env:SECRET}'", "hydra/help=mine"),
]  # fmt: skip

FOLDERS = [
    *(f"trainer: {{{setting}}}" for setting in (
        f"x: {SPAWN}", "_target_: os.system", "callbacks: {_target_: lightning.pytorch.callbacks.ModelCheckpoint}",
        "callbacks: [{_target_: lightning.pytorch.callbacks.ModelCheckpoint, dirpath: OUTSIDE}]", "profiler: advanced",
        "plugins: [{_target_: lightning.pytorch.plugins.io.TorchCheckpointIO}]", "profiler: pytorch", "devices: -5",
        "logger: [{_target_: lightning.pytorch.loggers.CSVLogger, save_dir: OUTSIDE}]", "devices: 1000000",
        "default_root_dir: ../x", "default_root_dir: 's3://x'", "strategy: {_target_: os.getcwd}", "num_nodes: 1000",
        "accelerator: {_target_: os.getcwd}", "accelerator: os", "max_time: {days: 1}", "max_steps: 1000000000",
        "fast_dev_run: 1000000000", "num_sanity_val_steps: -1", "reload_dataloaders_every_n_epochs: 1", "x: y",
    )),
    "cluster: {setup: ['touch CANARY'], folder: OUTSIDE}",
    "resources: {slurm: {wrap: 'touch CANARY'}}",
    'resources: {partition: "x\\n#SBATCH --wrap=touch"}',
    "resources: {cpus: 100000}",
    "checkpoint: {folder: OUTSIDE, every_steps: 0}",
    "export: {folder: OUTSIDE}",
    "task: {path: VICTIM}",
    "task: {folder: OUTSIDE, data_root: OUTSIDE, cache: OUTSIDE}",
    "model: {checkpoint: VICTIM}",
    "backbone: {weights: VICTIM}",
    "train: {init_from: VICTIM}",
]  # fmt: skip

TRUST = [
    *("trusted_packages: os", "trusted_packages: {a: os}", "trusted_packages: [[os]]", "trusted_packages: ['*', '.']",
      "'trusted_packages ': [os]", "' trusted_packages': [os]", "+trusted_packages: [os]", "trusted_packages+: [os]",
      "trusted_packages@x: [os]", "'trusted_packages.0': os", f"model: {{trusted_packages: [os], x: {SYSTEM}}}",
      "train: {trusted_packages: [os]}", "hydra: {trusted_packages: [os]}", "typed: ['trusted_packages=[os]']",
      f"model: {{typed: ['trusted_packages=[os]'], x: {SYSTEM}}}", "do: [train, export]", "do: ../x",
      "table: ../../x", "n_jobs: 100000000", "rerun: ['touch CANARY']", "sweep: {_target_: os.getcwd}"),
    *(f"depends_on: {setting}" for setting in (
        "os.system", "7", "{a: b}", "['']", "[{}]", "[&a [*a]]", "['-m model=latte,lavo']", "['--config-dir=OUTSIDE']",
        "['+x=shared']", "['do=export']", "['model=latte; touch CANARY']", "['$(touch CANARY)']", "['@VICTIM']",
        "['model=latte ++trusted_packages=[os]']", "['model=latte ++hydra.job.env_set.PATH=OUTSIDE']",
        "['model=latte paths.outputs=OUTSIDE']", "['model=latte task.path=VICTIM']", "['model=${oc.env:SECRET}']",
        "[{cell: 'model=latte', weights: [../../x]}]", f"[{SPAWN}]", f"['model=latte +model.x={SPAWN}']",
        "['seed=range(1,1000000000)']", "['model=glob(*)']",
    )),
]  # fmt: skip

TABLES = [
    *(row(**settings) for settings in (
        {"paths.records": "OUTSIDE"}, {"++hydra.job.env_set.PATH": "OUTSIDE"}, {"--config-dir": "OUTSIDE"}, {"-m": ""},
        {"task.notes": "${oc.env:SECRET}"}, {"a=b trusted_packages": ["os"]}, {"seed=2\ntrusted_packages": "[os]"},
        {"trusted_packages": ["os"], "+model.x": {"_target_": "os.system", "command": "touch CANARY"}}, {"": 1},
        {"+model.x": {"_target_": "os.system", "command": "touch CANARY"}}, {"~trusted_packages": None},
        {"train.max_steps": "4 trusted_packages=[os]"}, {"train.max_steps": "4,5"}, {"+x": "../../x"},
        {"task.path": "VICTIM"}, {"trainer.default_root_dir": "OUTSIDE"}, {"resources.partition": "x\n#SBATCH -w"},
    )),
    *(column(**changed) for changed in (
        {"task": "../../x"}, {"task": "/etc"}, {"task": "${oc.env:SECRET}"}, {"metric": "\x1b[2J"}, {"decimals": 10**9},
        {"task": "lra/listops trusted_packages=[os]"}, {"budget": "../x"}, {"metric": {"_target_": "os.getcwd"}},
    )),
    *(table(**changed) for changed in (
        {"title": "${oc.env:SECRET}"}, {"ledger": "VICTIM"}, {"ledger": "../../../x"}, {"protocol": "../../x"},
        {"seeds": list(range(10**5))}, {"seeds": ["1,2"]}, {"seeds": "range(1,10**9)"}, {"reference": "a\nb"},
        {"rows": {"../../x": {"model": "latte"}}}, {"rows": {"a": {"model": "latte trusted_packages=[os]"}}},
        {"rows": {"a": {"model": ["latte"]}}}, {"rows": {"a": {"model": "../../x"}}}, {"set": {"paths.records": "x"}},
        {"rows": {"a": {"model": "latte", "trusted_packages": ["os"]}}}, {"trusted_packages": ["os"]},
        {"hydra": {"run": {"dir": "OUTSIDE"}}}, {"defaults": ["/local/mine"]}, {"paths": {"records": "OUTSIDE"}},
    )),
]  # fmt: skip

NAMES = [
    *(f"model: {{name: {name}}}" for name in (
        "'../../../x'", "OUTSIDE/x", '"a\\0b"', '"\\e]0;x\\a"', '"\\u202Egnp"', "'a b'", "'-rf'", "'$(touch CANARY)'",
        "'" + "x" * 5000 + "'", "''", "'.'", "'con:aux'", "[a]", "{a: b}", '"a\\nb"', '"\\uFEFFlatte"',
    )),
    *(f"{group}: {{name: {name}}}" for group in ("task", "protocol", "budget") for name in ("../../x", '"\\e[2J"')),
    *(Case({f"x/{name}.yaml": f"{GLOBAL}seed: 2"}, (f"+x='{name}'",)) for name in (
        "$(touch CANARY2)", "a;b", "--help", "a\nb", "\x1b[2J", "\u202egnp", "x" * 250, "a,b", "a=b", "{a}", "*",
    )),
    option("model/os", f"{LATTE}\nname: lavo"),
    option("model/evil", "_target_: os.system\ncommand: touch CANARY\nname: evil"),
    option("model/evil", f"{LATTE}\nname: evil\npatterns: [causal_self]\nx: 1"),
    option("model/evil", "- 1"),
    option("model/latte", "_target_: os.system\ncommand: touch CANARY\nname: latte"),
    option("task/lra/listops", "_target_: os.system\ncommand: touch CANARY\nname: lra/listops", "task=lra/listops"),
    option("budget/smoke", "trusted_packages: [os]", "budget=smoke"),
    option("trainer/cpu", "_target_: os.system\ncommand: touch CANARY", "trainer=cpu"),
    option("trainer/cpu", "accelerator: cpu\nlogger: {_target_: os.getcwd}", "trainer=cpu"),
    option("logger/csv", "x: {_target_: os.system, command: 'touch CANARY'}", "logger=csv"),
    option("resources/cpu1", "cpus: 1\nsetup: touch CANARY", "resources=cpu1"),
    option("protocol/skyformer", f"{GLOBAL}trusted_packages: [os]\nmodel: {{x: {SYSTEM}}}", "protocol=skyformer"),
    option("debug/mine", f"{GLOBAL}hydra: {{job: {{env_set: {{PATH: OUTSIDE}}}}}}", "+debug=mine"),
]  # fmt: skip

FILES = [
    *(Case({}, links={SHARED: target}) for target in (
        "VICTIM", "/etc/passwd", "/dev/zero", "/dev/stdin", "/proc/self/environ", "/proc/kmsg", "shared.yaml",
        "nowhere.yaml", "fifo", "folder", "/etc", "/proc/self/mem",
    )),
    *(Case({SHARED: f"{GLOBAL}seed: 2"}, links={link: target}) for link, target in (
        ("x/loop", ".."), ("x/loop", "loop"), ("x/evil.yaml", "fifo"), ("model/evil.yaml", "fifo"), ("local", "/etc"),
        ("task/evil.yaml", "folder"), ("table/evil.yaml", "/dev/zero"), ("hydra", "/"), ("x/evil.yaml", "/dev/zero"),
    )),
    *(Case({SHARED: text}) for text in (
        b"", b"\x00", b"\xff\xfe" + f"{GLOBAL}seed: 2".encode("utf-16-le"), b"\xef\xbb\xbf# @package _global_\nseed: 2",
        "# @package _global_\nmodel: {name: \xe9}".encode("latin-1"), b"# @package _global_\r\nseed: 2\r\n",
        b"# @package _global_\nseed: \x1b[2J", b"\x1f\x8b\x08\x00", b"# @package _global_\n" + b"[" * 10**5,
        b"# @package _global_\n" + b"a: &a\n" * 10**4, b"\n" * (2 * 10**6),
        b"# @package _global_\nseed: 1" + b"0" * 10**5,
        ("# @package _global_\n" + "".join(f"k{n}: {n}\n" for n in range(50_000))).encode(),
        b"# @package _global_\nmodel: {x: " + b"{y: " * 900 + b"1" + b"}" * 900 + b"}",
        ("# @package _global_\nmodel: {x: '" + "${model.y}" * 20_000 + "'}").encode(),
        ("# @package _global_\nmodel: {x: '" + "${oc.select:" * 300 + "a" + "}" * 300 + "'}").encode(),
    )),
]  # fmt: skip

STRANGERS: dict[str, list[str | Case]] = {
    "targets": TARGETS,
    "yaml": TAGS,
    "interpolations": INTERPOLATIONS,
    "defaults and packages": DEFAULTS,
    "folders": FOLDERS,
    "trust": TRUST,
    "tables": TABLES,
    "names": NAMES,
    "files": FILES,
    "refused": list(REFUSED),
}
