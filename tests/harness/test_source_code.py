"""The digest of a cell's source: what it covers, what changes it, and how records of other code are treated."""

import pytest

from harness.config import source_code
from harness.config.compose import compose
from harness.config.places import ROOT
from harness.config.source_code import closure, source_digest, training_code
from harness.records import record
from harness.training import run_cell as running
from harness.training.run_cell import run_cell
from tests.helpers.cells import request_of

TARGETS = ("models.attention.a.A", "models.backbones.b.B", "tasks.c.C")
MODEL = """
from models.ops import scan


class A:
    def forward(self, x):
        return scan.run(x)
"""
SCAN = """
def run(x):
    return x + 1
"""
SAME_SCAN = '''
"""What it is."""


def run(x):
    """Why."""
    # so
    return (x + 1)
'''
TRAINING = """from tasks.c import C
from harness.records import record

LOSS = 1"""
FILES = {
    "models/__init__.py": "",
    "models/attention/a.py": MODEL,
    "models/ops/scan.py": SCAN,
    "models/ops/unused.py": "VALUE = 1",
    "models/backbones/b.py": "import models.attention.a\n\nB = 1",
    "tasks/c.py": "import torch\nfrom models.ops.scan import run\n\nC = 1",
}


@pytest.fixture
def tree(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def forget():
    functions = (source_digest, training_code, source_code.imports_of, source_code.tree_of, source_code.shape_of)
    for function in functions:
        function.cache_clear()


def digest(root, targets=TARGETS):
    forget()
    return source_digest(targets, root)


def training_digest(root):
    forget()
    return training_code(root)


def test_the_digest_covers_transitive_imports(tree):
    assert set(closure(TARGETS[0], tree)) == {"models", "models.attention.a", "models.ops.scan"}
    assert set(closure("models.attention.lavo.LAVO", ROOT)) >= {"models.attention.base", "models.ops.banded"}


@pytest.mark.parametrize(
    ("file", "text", "same"),
    [
        ("models/ops/scan.py", SCAN.replace("1", "2"), False),
        ("models/ops/scan.py", SAME_SCAN, True),
        ("models/ops/unused.py", "VALUE = 2", True),
        ("tasks/c.py", FILES["tasks/c.py"] + "2", False),
        ("models/attention/a.py", MODEL + "import models.ops.unused", False),
    ],
)
def test_a_change_of_source_changes_the_digest(tree, file, text, same):
    before = digest(tree)
    (tree / file).write_text(text)
    assert (digest(tree) == before) == same and len(before) == 16


@pytest.mark.parametrize(
    ("file", "text", "same"),
    [
        ("harness/training/module.py", "from tasks.c import C\n\nLOSS = 2", False),
        ("harness/training/optim/schedules.py", "RATE = 2", False),
        ("harness/config/build.py", "VALUE = 2", False),
        ("models/ops/native/a.cpp", "int b;", False),
        ("models/ops/scan.py", SCAN.replace("1", "2"), False),  # tasks.c imports it
        ("harness/training/module.py", f'"""Why."""\n{TRAINING}  # so', True),
        ("harness/records/record.py", "VALUE = 2", True),
        ("models/ops/unused.py", "VALUE = 2", True),
    ],
)
def test_a_change_of_the_training_changes_its_digest(tree, file, text, same):
    sources = {
        "harness/training/module.py": TRAINING,
        "harness/training/optim/schedules.py": "RATE = 1",
        "harness/config/build.py": "VALUE = 1",
        "models/ops/native/a.cpp": "int a;",
        "harness/config/instantiate.py": "VALUE = 1",
        "harness/records/record.py": "VALUE = 1",
    }
    for name, source in sources.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(source)
    before = training_digest(tree)
    (tree / file).write_text(text)
    assert (training_digest(tree) == before) == same and len(before) == 16
    (tree / file).write_text("def run(:\n")
    others = ("harness/records/record.py", "models/ops/unused.py", "models/ops/native/a.cpp")
    assert (training_digest(tree) is None) == (file not in others)


def test_a_class_from_elsewhere_is_its_file_and_is_not_imported(tree, monkeypatch):
    (tree / "elsewhere").mkdir()
    file = tree / "elsewhere" / "mine.py"
    file.write_text("raise SystemExit\n")
    monkeypatch.syspath_prepend(tree / "elsewhere")
    before = digest(tree, ("mine.Mine", *TARGETS[1:]))
    assert before not in (None, digest(tree))
    file.write_text("raise SystemExit(1)\n")
    assert digest(tree, ("mine.Mine", *TARGETS[1:])) not in (None, before)
    assert digest(tree, ("nowhere.Mine", *TARGETS[1:])) is None
    (tree / "models" / "ops" / "scan.py").write_text("def run(:\n")
    assert digest(tree) is None


def test_a_cell_of_other_code_is_skipped_with_a_line_that_says_so(places, monkeypatch):
    cfg = compose(["budget=smoke", "trainer=cpu", "task=lra/text", *places])
    done = run_cell(request_of(cfg))
    path = done.detail.rpartition(" · ")[2]
    code = record.read(path)["code_sha256"]
    assert done.state == "done" and code == source_code.code_of(cfg)
    again = run_cell(request_of(cfg))
    assert again.state == "skipped" and again.detail.startswith("already done: ")
    monkeypatch.setattr(running, "code_of", lambda cfg: "f" * 16)
    other = run_cell(request_of(cfg))
    said = f"already done by other code ({code[:8]}, now ffffffff; rerun=all runs it again): "
    assert other.state == "skipped" and other.detail.startswith(said)
