"""Hostile yaml in the place of each kind of shared file: one line that says where and what, and no traceback."""

import random
import sys
import time

import pytest

from harness.config import yaml_files
from harness.config.cell import cell_of
from harness.config.compose import compose
from harness.errors import UsageError
from harness.launch import local
from harness.records.run_directory import RunDirectory
from harness.training.checkpoints.saved_model import config_of

SCALARS = (
    *("!!timestamp evil", "!!int evil", "!!float evil", "!!bool evil", "!!binary '####'", "!!set evil", "!!set {a}"),
    *("!!omap [a: 1]", "!!python/object/apply:os.system [x]", "!evil x", "9" * 6_000, "0x" + "f" * 9_000),
    *("1:" + "59:" * 3_000 + "1", "0" + "7" * 9_000, '"\\0"', '"\\uD800"', "'${..}'", "'${a'", "'${a:'", "'${${${}}}'"),
    *("{1: 2}", "{true: 2}", "{null: 2}", "{1.5: 2}", "{[1]: 2}", "{<<: 3}", "&a [*a]", "*a"),
    *("'" + "${a:[" * 4_000 + "'", "[" * 4_000, "[" * 60 + "]" * 60, "[" + "1," * 60_000 + "]"),
    *("{a: 1", "@x", "%x", "'", "\t"),
)  # fmt: skip
KEYS = ("x", "seed", "name", "train", "defaults", "model")
WHOLE = (
    *("7", "true", "- [a]\n- 7", "1: 2", "null: 2", "defaults: 7", "defaults: {a: 1}", "defaults: [7]"),
    *("defaults: [[a]]", "defaults: [{a: 7}]", "defaults: [{a: {b: c}}]", "defaults: [{}]", "defaults: [../../../x]"),
    *("defaults: [//etc/x]", "defaults: ['${..}']", "defaults: [{'${x}': y}]", "{a: 1}\n---\n{b: 2}"),
    "%YAML 9.0\n---\na: 1",
    "a: &x\nb: *y",
)  # fmt: skip
GROUPS = ("model", "task", "protocol", "budget", "table")
KINDS = (*GROUPS, "job file", "overrides of a run")
CELL = {"model": "latte", "task": "lra/listops", "protocol": "skyformer", "budget": "smoke"}
LIMIT_S = 20.0  # of processor time; a command takes less than one second on an idle machine, and imports libraries


def fragments(dice, count):
    """`count` hostile files, each a whole one or a hostile value below a key."""
    for _ in range(count):
        yield dice.choice(WHOLE) if dice.random() < 0.3 else f"{dice.choice(KEYS)}: {dice.choice(SCALARS)}"


@pytest.fixture
def ended(tmp_path, run_here, places, capfd, monkeypatch):
    """(kind, content) -> exit status and lines of a command that reads this content."""
    mine = compose([f"{group}={name}" for group, name in CELL.items()])
    entries = {"cell": cell_of(mine).names(), "config": cell_of(mine).config}
    monkeypatch.setattr(sys, "path", [*sys.path])

    def read(kind, content, number):
        folder = tmp_path / str(number)
        path = folder / kind / "lra" / "evil.yaml" if kind in GROUPS else folder / ".hydra" / "overrides.yaml"
        path.parent.mkdir(parents=True)
        path.write_text(content)
        capfd.readouterr()
        if kind == "job file":
            status = local.main(path, ())
        elif kind in GROUPS:
            typed = {"table": "lra/evil", "budget": "smoke"} if kind == "table" else CELL | {kind: "lra/evil"}
            words = [f"{group}={name}" for group, name in typed.items()]
            status = run_here(["--config-dir", str(folder), *words, "do=plan", *places])
        else:
            try:
                config_of(entries, RunDirectory(folder), mine, {})
                status = 0
            except UsageError as error:
                status = print(f"error: {error}", file=sys.stderr) or 2
        return status, capfd.readouterr().err

    return read


def check(ended, kind, content, number):
    began = time.process_time()
    status, printed = ended(kind, content, number)
    attempt = f"{kind}: {content[:80]!r}: {status} {printed[:500]}"
    assert status == 2 and printed.startswith("error: ") and printed.count("\n") == 1, attempt
    assert len(printed.strip()) > len("error: ....") and not printed.rstrip().endswith(":"), attempt
    assert len(printed) < 1_000 and time.process_time() - began < LIMIT_S, attempt


def test_hostile_yaml_ends_in_one_line(ended):
    dice = random.Random(7)
    for kind, content in zip(KINDS, fragments(dice, len(KINDS)), strict=True):
        check(ended, kind, content, kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_hostile_yaml_ends_in_one_line(ended, kind):
    """Each content is read as two or three of the kinds, which share their reader."""
    dice = random.Random(KINDS.index(kind))
    contents = [*WHOLE, *(f"{dice.choice(KEYS)}: {scalar}" for scalar in SCALARS)][KINDS.index(kind) % 3 :: 3]
    for number, content in enumerate([*contents, *fragments(dice, 8)]):
        check(ended, kind, content, number)


@pytest.mark.parametrize("words", [
    ["seed=${oc.env:HOME}"], ["task.path=/etc/passwd"], ["model=" + "[" * 4_000], ["model='"], [7, None], "seed=3",
    ["protocol=../../x"], ["task.path=../../../../../etc/passwd"], ["seed=1,2"], ["seed="], ["=x"], ["~model"],
])  # fmt: skip
def test_the_overrides_of_a_run_are_a_recipe(ended, words):
    status, printed = ended("overrides of a run", yaml_files.text_of(words), 0)
    assert status == 2 and printed.count("\n") == 1 and "overrides.yaml" in printed, printed
