"""Hostile configurations, and records that contradict themselves."""

import random
from collections.abc import Callable
from typing import Any

HOSTILE_TARGETS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("os.system", ("command='touch CANARY'",)),
    ("subprocess.Popen", ("args=[touch,CANARY]",)),
    ("subprocess.check_output", ("args=[touch,CANARY]",)),
    ("builtins.eval", ('source=\'open("CANARY","w")\'',)),
    ("builtins.open", ("file=CANARY", "mode=w")),
    ("pathlib.Path.touch", ("self=CANARY",)),
    ("torch.load", ("f=CANARY", "weights_only=false")),
    ("torch.hub.load", ("repo_or_dir=CANARY", "model=x", "source=local")),
    ("torch.save", ("obj=1", "f=CANARY")),
    ("torch.jit.load", ("f=CANARY",)),
    ("torch.fx.graph_module._exec_with_source", ('src=\'open("CANARY","w")\'', "globals={}")),
    ("torch._inductor.codecache.PyCodeCache.load", ('source_code=\'open("CANARY","w")\'',)),
    ("torch.utils.cpp_extension.load", ("name=x", "sources=[CANARY]")),
    ("harness.records.files.write_atomic", ("path=CANARY", "text=x")),
    ("harness.launch.snapshot.take", ("parent=CANARY",)),
    ("harness.records.files.write_bytes_atomic", ("path=CANARY", "data=x")),
    ("models.attention.base.torch.save", ("obj=1", "f=CANARY")),
    ("tasks.cache.shutil.rmtree", ("path=CANARY",)),
    ("tasks.base.Path.touch", ("self=CANARY",)),
    ("lightning.pytorch.utilities.types.os.system", ("command='touch CANARY'",)),
    ("lightning.fabric.utilities.cloud_io._atomic_save", ("checkpoint={}", "filepath=CANARY")),
    ("torch.optim.lr_scheduler.partial", ("func=os.system",)),
    ("torchmetrics.utilities.imports.os.system", ("command='touch CANARY'",)),
    ("importlib.import_module", ("name=antigravity",)),
    ("runpy.run_path", ("path_name=CANARY",)),
    ("hydra.utils.call", ("config={}",)),
    ("hydra.utils.get_method", ("path=os.system",)),
    ("models", ()),
    ("models.attention.latte", ()),
    ("tasks.lra.listops.np.save", ("file=CANARY", "arr=[1]")),
)


SPAWN = "_target_: setuptools._distutils.spawn.spawn, cmd: [touch, 'CANARY']"
TEXT = "{_target_:setuptools._distutils.spawn.spawn,cmd:[touch,CANARY]}"
PARTS = ("model", "task", "backbone", "train.optimizer", "train.schedule", "trainer", "logger.x", "model.y.z")
REPEATED = ", ".join(f"a{level}: '{10 * f'${{model.a{level - 1}}}'}'" for level in range(1, 12))
TENFOLD = f"{{a0: xxxxxxxxxx, {REPEATED}}}"


def placed(part: str, text: str) -> str:
    """`{a: {b: text}}` for `a.b`"""
    for key in reversed(part.split(".")):
        text = f"{key}: {text}" if key == part.split(".")[0] else f"{{{key}: {text}}}"
    return text


def hostile_targets():
    """Each target at a place that others of the list have, too."""
    for number, (name, arguments) in enumerate(HOSTILE_TARGETS):
        pairs = (argument.partition("=")[::2] for argument in arguments)
        given = "".join(f", {key}: {value}" for key, value in pairs if "(" not in value)
        yield placed(PARTS[number % len(PARTS)], f"{{x: {{_target_: {name}{given}}}}}")


def hostile_texts():
    for part in PARTS:
        yield placed(part, f"{{x: '\\${{oc.create:{TEXT}}}'}}")
        yield placed(part, f"{{x: '${{oc.create:{TEXT}}}'}}")
        yield placed(part, f"{{x: '${{oc.decode:\"{TEXT}\"}}'}}")
        yield placed(part, f"{{x: [[{{y: {{{SPAWN}}}}}]]}}")
        yield placed(part, "{x: '${oc.env:HOME}'}")


SETTINGS = [
    "trusted_packages: [setuptools]",
    f"trusted_packages: [setuptools]\nmodel: {{x: {{{SPAWN}}}}}",
    "trusted_packages: '${oc.create:[setuptools]}'",
    *(f"paths: {{{name}: CANARY}}" for name in ("data", "slices", "outputs", "records", "paper", "bench", "tables")),
    "paths: {records: '${paths.outputs}/../../elsewhere'}",
    "depends_on: ['trusted_packages=[setuptools] seed=2']",
    "depends_on: ['paths.records=CANARY seed=2']",
    "depends_on: [{cell: 'hydra.run.dir=CANARY', weights: [layers]}]",
    "depends_on: [[1]]",
    "task: {data_root: CANARY}",
    "cluster: {setup: ['touch CANARY']}",
    "cluster: {folder: CANARY}",
    "cluster: {sbatch: {wrap: 'touch CANARY'}}",
    *(f"hydra: {{{key}}}" for key in (
        "run: {dir: CANARY}", "output_subdir: CANARY", "job: {chdir: true}", "job: {env_set: {PATH: CANARY}}",
        "job: {env_copy: [HOME]}", "searchpath: ['file://CANARY']", "mode: MULTIRUN",
        "sweeper: {params: {seed: '1,2'}}",
        f"callbacks: {{x: {{{SPAWN}}}}}", f"launcher: {{{SPAWN}}}", f"sweeper: {{{SPAWN}}}",
        "job_logging: {handlers: {f: {class: logging.FileHandler, filename: CANARY}}}",
        "hydra_logging: {handlers: {f: {class: logging.FileHandler, filename: CANARY}}}",
        "job_logging: {formatters: {f: {(): os.system, command: 'touch CANARY'}}}", "job_logging: 3",
    )),
    *(f"logger: {{x: {{_target_: lightning.pytorch.loggers.{settings}}}}}" for settings in (
        "CSVLogger, save_dir: CANARY", "CSVLogger, save_dir: .", "CSVLogger, name: ../../x", "CSVLogger, name: CANARY",
        "TensorBoardLogger, save_dir: CANARY", "TensorBoardLogger, save_dir: '~/x'",
        "WandbLogger, dir: CANARY", "WandbLogger, settings: {x_executable: CANARY}",
        "MLFlowLogger, tracking_uri: 'file:CANARY'", "MLFlowLogger, tracking_uri: 'sqlite:///CANARY'",
    )),
    *(f"trainer: {{{settings}}}" for settings in (
        "default_root_dir: CANARY", "precision: 16-mixed", "gradient_clip_val: 1.0e-4", "accumulate_grad_batches: 2",
        "max_epochs: 1", "limit_train_batches: 1", "strategy: ddp", "callbacks: [x]", "plugins: [x]", "logger: true",
        "profiler: {_target_: lightning.pytorch.profilers.SimpleProfiler, dirpath: CANARY}", "deterministic: false",
        "overfit_batches: 1", "fast_dev_run: true", "val_check_interval: 1", "enable_checkpointing: true",
        "sync_batchnorm: true", "benchmark: true", "barebones: true", "use_distributed_sampler: 1",
    )),
    "backbone: {layers: 10000000}", "backbone: {dim: 1000000000}", "model: {latents: 1000000000}",
    "backbone: {ffn_dim: 1000000000}", "backbone: {heads: 100000000}", "model: {name: ../../x}", "task: {name: /x}",
    f"model: {TENFOLD}", "x: &a [*a]", "[" * 300 + "]" * 300, "a: " + "9" * 9_000, "model: {x: '${model}'}",
    "model: {x: '${model.y}', y: '${model.x}'}", "# " + "x" * 2**20, "model: [", "- 1", "&a a: *b",
]  # fmt: skip
# settings of a shared file, each of which is refused
REFUSED = [*hostile_targets(), *hostile_texts(), *SETTINGS]


def set_to(*path: str, new: Callable[[Any], Any]) -> Callable[[dict[str, Any], random.Random], None]:
    def change(entries: dict[str, Any], dice: random.Random) -> None:
        node = entries
        for key in path[:-1]:
            node = node[key]
        node[path[-1]] = new(node.get(path[-1]))

    return change


def scaled(*path: str, by: float) -> Callable[[dict[str, Any], random.Random], None]:
    return set_to(*path, new=lambda old: type(old)(old * by) if by != -1 else -abs(old) - 1)


def replaced(*path: str, value: Any) -> Callable[[dict[str, Any], random.Random], None]:
    return set_to(*path, new=lambda _: value)


def relabelled(**settings: Any) -> Callable[[dict[str, Any], random.Random], None]:
    def change(entries: dict[str, Any], dice: random.Random) -> None:
        for key, value in settings.items():
            if key in ("source",):
                entries["data"]["source"] = value
            else:
                entries["cell"][key] = value
                entries["config"][key] = entries["config"][key] | {"name": value} if key != "seed" else value

    return change


RELABELLED = ("another budget", "the paper's budget and data", "another model", "another protocol", "another task")
CONTRADICTIONS: dict[str, Callable[[dict[str, Any], random.Random], None]] = {
    "another budget": relabelled(budget="paper"),
    "the paper's budget and data": relabelled(budget="paper", source="full"),
    "another model": relabelled(model="lavo"),
    "another protocol": relabelled(protocol="google"),
    "another task": relabelled(task="lra/text"),
    "another seed beside": replaced("cell", "seed", value=77),
    "another model beside": replaced("cell", "model", value="lavo"),
    "another budget beside": replaced("cell", "budget", value="reduced"),
    "another id": replaced("cell", "id", value="0" * 16),
    "full data": replaced("data", "source", value="full"),
    "unknown data": replaced("data", "source", value="unknown"),
    "more steps": scaled("steps", by=2),
    "fewer steps": scaled("steps", by=0.5),
    "negative steps": scaled("steps", by=-1),
    "more examples": scaled("examples", by=3),
    "negative tokens": scaled("tokens", by=-1),
    "accuracy of 140": replaced("metrics", "best", "test", "acc", value=140.0),
    "another accuracy": scaled("metrics", "best", "test", "acc", by=1.5),
    "negative loss": replaced("metrics", "best", "val", "loss", value=-3.0),
    "a loss of 1e308": replaced("metrics", "last", "val", "loss", value=1e308),
    "scored twice": scaled("metrics", "best", "test", "n", by=2),
    "scored half": scaled("metrics", "last", "val", "n", by=0.5),
    "a step to come": replaced("metrics", "best", "step", value=10**6),
    "no best": replaced("metrics", "best", value=None),
    "ended before it began": replaced("finished", value="2001-01-01T00:00:00+00:00"),
    "no time": replaced("started", value="yesterday"),
    "a day of work in a second": replaced("wall_s", value=86400.0),
    "one token": replaced("tokens", value=1),
    "a fast reader": replaced("tokens_per_s", value=1e9),
    "a fast learner": replaced("examples_per_s", value=1e9),
    "no memory": replaced("peak_memory_mb", value=0.001),
    "a chance level of 0": replaced("baseline", "test", value=0.0),
    "a metric of another name": replaced("metric", "name", value="loss"),
    "slower than it was": replaced("examples_per_s", value=1e-6),
    "another rate than that of its search": replaced(
        "search",
        value={
            "by": "validation loss",
            "rates": [123.0],
            "scores": [1.0],
            "seeds": [101],
            "chosen": 123.0,
            "error": None,
            "on_edge": False,
        },
    ),
    "negative memory": scaled("peak_memory_mb", by=-1),
    "negative resumes": scaled("resumes", by=-1),
    "more attention than model": scaled("parameters", "attention", by=1000),
    "another rule": replaced("selection", "rule", value="last"),
    "a hidden leak": replaced("selection", "rule", value="best_test"),
    "done with an error": replaced("error", value={"type": "x", "message": "x", "traceback": "x"}),
    "failed without one": replaced("status", value="failed"),
    "a change that is none": replaced("changed", value={"train.max_steps": [1, 2]}),
    "a dependency": replaced("depends_on", value=[{"cell": "ab" * 8, "weights_sha256": None}]),
    "no weights": replaced("weights_sha256", value="abc"),
    "a name with a line break": replaced("baseline", "name", value="a\n## b"),
    "a name that acts on a terminal": replaced("hardware", "cpu", value="\x1b[2J"),
    "a metric that is missing": replaced("metric", "name", value="bleu"),
    "an evaluation of other scores": replaced("evaluations", "test", "metrics", value={"acc": 99.0}),
}

# new files with keys, which no snapshot copies
PRIVATE_FILES = (
    *(
        ".env",
        ".envrc",
        ".netrc",
        ".pypirc",
        ".pgpass",
        ".npmrc",
        ".git-credentials",
        ".aws/config",
        ".aws/credentials",
    ),
    *(".docker/config.json", ".ssh/id_rsa", ".kube/config", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "token"),
    *("hf_token.txt", "secrets.yaml", "secrets.json", "kaggle.json", "wandb_api_key", "service-account.json"),
    *("service_account_7.json", "client_secret_12.apps.json", "cert.p12", "cert.pfx", "store.kdbx", "login.pem"),
    *("my.key", "password.txt", "credentials.json", "dump.sql", "notes.txt", "key.asc", "putty.ppk", "vpn.ovpn"),
)
