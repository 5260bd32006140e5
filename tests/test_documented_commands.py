"""Every command in the pages, in `--help` and in the comments of conf/ is run here, in an empty folder.

A training command is planned, which composes and expands all of its cells; at `budget=smoke` it runs. Tables are
reduced to one row (`SHORTER`), because the table tests expand all. The default suite tests the names on the pages.
"""

import copy
import functools
import importlib.util
import re
import runpy
import shlex
import shutil
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from hydra.core.singleton import Singleton
from omegaconf import OmegaConf

from harness.commands.rewrite import rewrite
from harness.config.cell import flatten
from harness.config.compose import NAMED, options
from harness.config.overrides import split_sweep
from harness.config.schema import Config
from harness.config.sweep import compose_commands, expand_all
from harness.config.table_rows import row_named

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
CONTRACT = "from models.attention.base import MultiHead, Pattern"
RECORDS, SOME_RECORDS = ROOT / "results/records", "lra/listops/skyformer/reduced"
HELP = ROOT / "conf/hydra/help/longhaul.yaml"

# `page: command` -> why it does not run here
EXEMPT = {
    r"^CONTRIBUTING.md file=commands: ": "tests/test_contributing.py runs these blocks in a copy of the clone",
    r"^clusters.md: next: ": "it is what a submission prints",
    r"^clusters.md: srun ": "eight processes; tests/harness/test_groups.py runs one of them",
    r"hydra/sweeper=optuna": "Optuna is an extra; tests/harness/test_tune.py searches with it",
    r"do=report '?format=\[html\]'?$": "the pages of all tables; `make docs` makes them",
}


class Rule(NamedTuple):
    """`words` are appended to commands with all of `has` and none of `lacks`; the last override wins."""

    has: tuple[str, ...]
    lacks: tuple[str, ...]
    words: str
    why: str


ALWAYS = [
    Rule(("do=bench",), (), "lengths=64 bench.rounds=1", "it measures for minutes"),
    Rule(("do=verify",), ("model=",), "model=local", "tests/harness/test_verify.py verifies all models"),
    Rule(("do=prepare",), ("budget=",), "budget=smoke", "published data are gigabytes; this budget makes its own"),
    Rule(("model=custom",), ("budget=",), "budget=smoke", "a class is built when it runs, not when it is planned"),
    Rule((), ("do=", "--", "budget=smoke"), "do=plan", "hours, GPUs, and data that are not here"),
    Rule(("hydra/launcher=slurm", "budget=smoke"), ("do=",), "do=plan", "tests/slurm submits jobs"),
]
# run as printed by other tests
SHORTER = [
    Rule(("-m ", "budget=smoke"), ("do=",), "do=plan", "several cells are not run"),
    Rule(("do=plan", "table="), ("model=",), "model=vanilla", "one row of a table"),
    Rule(("do=plan", "table=lavo/t11"), (), "task=lra/listops", "one column of a table"),
    Rule(("do=report",), ("=all", "figure=", "table=", "format="), "table=demo", "one table of all"),
    Rule(("do=bench",), (), "what=forward", "one measure of three"),
    Rule(("do=baselines",), (), "task.train=2000", "fits to fewer examples"),
]
# word -> its replacement
OPEN = {"task=...": "task=lra/listops"}  # left to the reader
SHORTER_WORDS = {"table=all": "table=demo", "'model=latte*'": "'model=latte_s*'"}
READERS_OWN = ("mine", "gated_mean", "evening")  # names of the reader's own files on a page

FENCE = re.compile(r"^```\w*([^\n]*)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
SHELL = re.compile(r"(?:(?:python|torchrun\s[^#`]*) (?:run\.py|-m longhaul)|longhaul)\s+(.+)")
HELPED = re.compile(r"python run\.py((?: +(?:-m|'\S+'|[\w./]+=\S+|[0-9a-f]{8}))+)")  # followed by its description
SETTINGS = re.compile(r"do=\w+(?: [\w./]+=\S+)*|(?:model|task|table|figure)=\S+(?: [\w./]+=\S+)+")  # without run.py


def documented():
    """(page and line, command) of every printed command; for a line that only mentions a command, the line."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for label, block in FENCE.findall(text):
            yield from ((page.name + label, command) for command in commands(block))
        for span in spans(text):
            yield from ((page.name, command) for command in commands(span))
            if SETTINGS.fullmatch(span):
                yield page.name, span
    for words in HELPED.findall(HELP.read_text(encoding="utf-8")):
        yield "--help", shlex.join(shlex.split(words))
    for file in sorted((ROOT / "conf").rglob("*.yaml")):
        for comment in re.findall(r"(?:^|\s)#(.*)", file.read_text(encoding="utf-8")):
            yield from ((file.name, command) for command in SETTINGS.findall(comment.replace("`", " ")))


def spans(text):
    """Text between backticks, outside of code blocks."""
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", FENCE.sub("", text))]


def commands(text):
    """The arguments of run.py on each line that calls it."""
    for line in text.replace("\\\n", " ").splitlines():
        if command := SHELL.match(line.strip()):
            yield shlex.join(shlex.split(command[1], comments=True))
        elif "python run.py " in line:
            yield line.strip()


def applies(rule, command):
    return all(part in command for part in rule.has) and not any(part in command for part in rule.lacks)


def to_be_typed(command, words, rules):
    command = " ".join(words.get(word, word) for word in command.split())
    for rule in rules:
        command += f" {rule.words}" * applies(rule, command)
    return command


PRINTED = [f"{line}: {command}" for line, command in documented()]
TYPED = [line.split(": ", 1)[1] for line in PRINTED if not any(re.search(pattern, line) for pattern in EXEMPT)]
FULL = list(dict.fromkeys(to_be_typed(command, OPEN, ALWAYS) for command in TYPED))
SHORT = list(dict.fromkeys(to_be_typed(command, SHORTER_WORDS, SHORTER) for command in FULL))
PLANNED = [command for command in SHORT if "do=plan" in command and "mine" not in command]  # without its own files
RUN = [command for command in SHORT if command not in PLANNED]
READS_RECORDS = ("do=report", "do=status", "do=compare", "do=check")


@pytest.fixture
def run_here(tmp_path, monkeypatch, capfd):
    """command -> its output: run.py in this process, in an empty folder."""
    singletons = copy.deepcopy(Singleton.get_state())
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")  # run.py sets it
    monkeypatch.chdir(tmp_path)
    # relative, so that commands share compositions; the published numbers are read in place
    places = [f"paths.{name}={name}" for name in ("data", "outputs", "records", "tables", "figures", "bench")]
    places.append(f"paths.paper={ROOT / 'results/paper'}")

    def run(command, *more):
        words = [*shlex.split(command), *more]
        if "check=true" in words:  # of earlier output
            run(command.replace("check=true", ""), *more)
        if {"do=curves", "do=export", "do=outputs"} & set(words):
            run(f"model=lavo task={'forecasting/etth1' if 'do=outputs' in words else 'lra/listops'} budget=smoke")
        if command.startswith(READS_RECORDS):
            shutil.copytree(RECORDS / SOME_RECORDS, tmp_path / "records" / SOME_RECORDS, dirs_exist_ok=True)
        if not {"do=list", "--help"} & set(words):
            words = [*places, *words]
        if {"model=mine", "model=custom", "model=module", "cluster=mine"} & set(words):
            words = ["--config-dir", str(own_files(tmp_path, monkeypatch)), *words]
        monkeypatch.setattr(sys, "argv", ["run.py", *words])
        monkeypatch.setattr(sys, "path", [*sys.path])
        with pytest.raises(SystemExit) as stop:
            runpy.run_path(str(ROOT / "run.py"), run_name="__main__")
        shown = "".join(capfd.readouterr())
        assert not stop.value.code and "Traceback" not in shown, f"python run.py {shlex.join(words)}\n{shown}"
        return shown

    yield run
    Singleton.set_state(singletons)
    sys.modules.pop("mypkg", None)


def own_files(folder, monkeypatch):
    """A folder with README.md's model `mine`, whose class is also in mypkg, and docs/clusters.md's cluster `mine`.

    mypkg also has the plain module of docs/own.md.
    """
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (source,) = re.findall(r"`models/attention/mine.py`:\n\n```python\n(.*?)```", text, flags=re.DOTALL)
    own_page = (ROOT / "docs/own.md").read_text(encoding="utf-8")
    (plain,) = re.findall(r"```python file=mypkg.py\n(.*?)```", own_page, flags=re.DOTALL)
    (model,) = re.findall(r"`conf/model/mine.yaml`:\n\n```yaml\n(.*?)```", text, flags=re.DOTALL)
    files = {
        "mypkg.py": f"{CONTRACT}\n{plain}\n\n{source}\n\nMyAttention = Mine\n",
        # each token's own value is causal, too: docs/tasks.md has a row for it
        "mine.py": source.replace("frozenset({", "frozenset({Pattern.CAUSAL_SELF, "),
        "own/model/mine.yaml": model,
        "own/cluster/mine.yaml": (ROOT / "conf/cluster/modules.yaml").read_text(encoding="utf-8"),
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    spec = importlib.util.spec_from_file_location("models.attention.mine", folder / "mine.py")
    monkeypatch.setitem(sys.modules, spec.name, importlib.util.module_from_spec(spec))
    spec.loader.exec_module(sys.modules[spec.name])
    monkeypatch.setattr("harness.config.option_files.is_own", lambda folder: True)  # as if they were in the clone
    return folder / "own"


@pytest.mark.slow
@pytest.mark.parametrize("command", PLANNED)
def test_a_documented_command_has_cells(command):
    """Compositions as in a sweep; run.py composes each command twice."""
    words = [word for word in rewrite(shlex.split(command)) if word != "-m" and not word.startswith("hydra/")]
    assert expand_all(compose_commands(split_sweep(words))).cells


@pytest.mark.slow
@pytest.mark.parametrize("command", RUN)
def test_a_documented_command_runs(command, run_here):
    run_here(command)


@pytest.mark.slow
def test_the_help_prints_the_commands_that_are_tested(run_here):
    shown = run_here("--help").splitlines()
    lines = [line.strip() for line in HELP.read_text(encoding="utf-8").splitlines() if "python run.py" in line]
    assert len(lines) >= 10 and set(lines) <= {line.strip() for line in shown}


def test_every_rule_is_needed():
    assert len(PRINTED) >= 80
    assert [rule for rule in EXEMPT if not any(re.search(rule, line) for line in PRINTED)] == []
    for given, words, rules in ((TYPED, OPEN, ALWAYS), (FULL, SHORTER_WORDS, SHORTER)):
        assert set(words) <= {word for command in given for word in command.split()}
        for number, rule in enumerate(rules):
            before = (to_be_typed(command, words, rules[:number]) for command in given)
            assert any(applies(rule, command) for command in before), rule


def is_there(group, name):
    """A group option, a folder of tables (all tables in it), or, for do=bench, a row that is a model."""
    named = dict(options(group))
    in_folder = group == "table" and any(option.startswith(f"{name}/") for option in named)
    return name in named or in_folder or (group == "model" and row_named(name) is not None)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_exists(page):
    """Modules, scripts, make targets, extras; models, tasks, tables in `group=name`; keys in `key.key=value`."""
    text = page.read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    exists = {
        r"python -m ([\w.]+)": lambda module: importlib.util.find_spec(module) is not None,
        r"python (\S+\.py)": lambda script: (ROOT / script).is_file(),
        r"make (\w+)": lambda target: f"\n{target}:" in makefile,
        r"pip install -e '?\.\[(\w+)\]": lambda extra: extra in project["optional-dependencies"],
    }
    lines = [*spans(text), *(line.strip() for _, block in FENCE.findall(text) for line in block.splitlines())]
    for line in lines:
        for pattern, there in exists.items():
            assert not (match := re.match(pattern, line)) or there(match[1]), line
    for word in (word for line in [*spans(text), *commands(text)] for word in line.split()):
        group, _, value = word.partition("=")
        names = value.split(",") if group in NAMED and re.fullmatch(r"[\w/,]+", value) else []
        for name in names:
            assert is_there(group, name) or name.startswith(READERS_OWN), word
    assert set(re.findall(r"(?<![\w.+])[a-z]+(?:\.\w+)+(?==)", " ".join(spans(text)))) <= settings()


@functools.cache
def settings():
    """`key.key` of every value of any task, model, recipe, logger, ..."""
    keys = set(flatten(OmegaConf.to_container(OmegaConf.structured(Config))))
    for file in sorted((ROOT / "conf").rglob("*.yaml")):
        group = file.relative_to(ROOT / "conf").parts[0]
        prefix = "" if group in ("protocol", "budget") else f"{group}."
        keys |= set(flatten(yaml.load(file.read_text(encoding="utf-8"), yaml.CSafeLoader), prefix))
    return keys | {key.rpartition(".")[0] for key in keys}  # and the mappings that hold them
