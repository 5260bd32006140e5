"""No attribute of a library is replaced while the program runs: not by assignment, `setattr`, or in `sys.modules`."""

import ast
import itertools

import pytest

from harness.config.places import ROOT

PACKAGES = ("run.py", "harness", "tasks", "models", "longhaul", "hydra_plugins", "benchmarks", "docs/hooks")
LIBRARIES = (
    *("hydra", "omegaconf", "yaml", "lightning", "lightning_fabric", "lightning_utilities", "torch", "torchmetrics"),
    *("numpy", "pydantic", "optuna", "submitit", "matplotlib", "datasets", "tokenizers", "transformers"),
)
FLAGS = ("torch.backends.", "torch.utils.deterministic.fill_uninitialized_memory")  # that torch offers for setting
RESTORED = {"harness/training/lean_imports.py"}  # it restores what it replaces


def files():
    paths = [
        path for name in PACKAGES for path in ([ROOT / name] if name.endswith(".py") else (ROOT / name).rglob("*.py"))
    ]
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in sorted(paths)}


def names_of_libraries(tree):
    """{name: what it stands for} of the names in a file that are imported from a library."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.asname or alias.name.split(".")[0]: alias.name if alias.asname else alias.name.split(".")[0]
                      for alias in node.names}  # fmt: skip
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return {name: target for name, target in names.items() if target.split(".")[0] in LIBRARIES}


def replaced(text):
    """The attributes of libraries that a file replaces, and modules that it puts in their place."""
    tree = ast.parse(text)
    libraries = names_of_libraries(tree)

    def name_of(node):
        """`torch.optim.Adam` of an attribute or a name of a library; None of anything else."""
        if isinstance(node, ast.Name):
            return libraries.get(node.id)
        parent = name_of(node.value) if isinstance(node, ast.Attribute) else None
        return parent and f"{parent}.{node.attr}"

    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.Delete)):
            targets = node.targets
        else:
            targets = [node.target] if isinstance(node, (ast.AugAssign, ast.AnnAssign)) else []
        for target in itertools.chain.from_iterable(map(ast.walk, targets)):
            if isinstance(target, ast.Attribute) and not isinstance(target.ctx, ast.Load) and (name := name_of(target)):
                yield name
            if isinstance(target, ast.Subscript) and ast.unparse(target.value) in ("sys.modules", "sys.meta_path[:]"):
                yield ast.unparse(target)
        function = node.func if isinstance(node, ast.Call) else None
        is_setter = getattr(function, "attr", getattr(function, "id", "")) in ("setattr", "delattr", "patch")
        if is_setter and node.args and (name := name_of(node.args[0])):
            yield name
        if getattr(getattr(function, "value", None), "attr", "") == "meta_path":
            yield ast.unparse(function)


def test_no_attribute_of_a_library_is_replaced():
    found = {
        name: [attribute for attribute in replaced(text) if not attribute.startswith(FLAGS)]
        for name, text in files().items()
    }
    assert {name: attributes for name, attributes in found.items() if attributes and name not in RESTORED} == {}
    assert all(found[name] for name in RESTORED)


@pytest.mark.parametrize("line", [
    "import torch\ntorch.optim.SGD.step = f", "from torch import optim as o\no.SGD.step = f",
    "import torch.nn as nn\nnn.x += 1",
    "from hydra._internal.hydra import Hydra\nHydra.get_mode = f", "import yaml\nsetattr(yaml, 'load', f)",
    "import yaml\nmonkeypatch.setattr(yaml, 'load', f)", "import yaml\na, yaml.load = 1, f",
    "import yaml\ndel yaml.load",
    "import yaml\nfrom unittest import mock\nmock.patch(yaml.load)", "import sys\nsys.modules['torch._dynamo'] = f",
    "import sys\nsys.meta_path.insert(0, f)",
    "def f():\n    import lightning.pytorch\n    lightning.pytorch.Trainer.fit = f",
])  # fmt: skip
def test_a_replacement_is_found(line):
    assert list(replaced(line))


@pytest.mark.parametrize("line", [
    "import torch\nx = torch.optim.SGD.step", "import torch\nx = torch.zeros(3)\nx.requires_grad = True",
    "self.torch = 1",
    "import sys\nsys.argv[1:] = []", "from harness import errors\nerrors.x = 1", "import torch\nx[torch.arange(3)] = 1",
])  # fmt: skip
def test_what_is_ours_is_no_replacement(line):
    assert not list(replaced(line))
