"""The import map: imports only go down the floors, without cycles; no file exceeds the length limit."""

import pytest
from import_map import CONFIG, CONFIG_ROOM, ROOT, ImportMap, text

MAP = ImportMap()


def test_imports_go_down():
    assert not MAP.upward()


def test_the_rooms_of_config_are_few_and_in_order():
    modules = [module.name for module in MAP.modules.values() if module.name.startswith("harness.config.")]
    assert {name.rpartition(".")[2] for name in modules} == set(CONFIG_ROOM)
    arrows = [pair for pair in MAP.room_arrows() if all(room.startswith("harness.config.") for room in pair)]
    assert len(CONFIG) <= 7 and len(arrows) <= 21


def test_no_import_is_relative():
    assert not [module.name for module in MAP.packages.values() if any(name[:1] == "." for name in module.imports)]


def test_there_is_no_import_cycle_of_modules_or_packages():
    assert not MAP.cycle() and not MAP.room_cycle()


def test_no_model_or_task_is_named_in_the_harness():
    """The harness reaches models and tasks only through `_target_`; it knows only their interfaces."""
    interfaces = ("models.attention.base", "tasks.base", "tasks.checks", "tasks.file_digests", "tasks.regular_files")
    interfaces += ("tasks.workers", "models.generation.state")
    assert not [
        f"{module.name} -> {name}"
        for module in MAP.packages.values()
        if module.name.startswith("harness")
        for name in module.imports
        if name.startswith(("models.", "tasks.")) and not name.startswith(interfaces)
    ]


def test_no_file_is_over_400_lines():
    files = [*(module.path for module in MAP.packages.values()), *(ROOT / "tests").rglob("*.py")]
    lengths = {path.relative_to(ROOT): len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    assert len(lengths) > 200 and not [path for path, length in lengths.items() if length > 400]


def test_the_entry_point_is_short():
    assert len((ROOT / "run.py").read_text(encoding="utf-8").splitlines()) <= 60


@pytest.mark.parametrize(
    ("files", "upward", "cycle"),
    [
        ({"harness/launch/a.py": "from harness.config import b", "harness/config/b.py": ""}, 0, 0),
        ({"harness/config/b.py": "import harness.launch.a", "harness/launch/a.py": ""}, 1, 0),
        ({"harness/config/__init__.py": "from harness.launch.a import x", "harness/launch/a.py": "x = 1"}, 2, 0),
        ({"tasks/a.py": "def f():\n    from harness.errors import UsageError", "harness/errors.py": ""}, 2, 0),
        (
            {"harness/report/a.py": "from harness.report import b", "harness/report/b.py": "import harness.report.a"},
            0,
            2,
        ),
        ({"models/ops/a.py": "import torch, tasks.base", "tasks/base.py": ""}, 1, 0),
    ],
)
def test_the_map_finds_arrows_up_and_cycles(tmp_path, files, upward, cycle):
    for name, source in (files | {"run.py": ""}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(source)
    import_map = ImportMap(tmp_path)
    assert (len(import_map.upward()), len(set(import_map.cycle()))) == (upward, cycle)
    assert ("no arrow up" in text(import_map), "no cycle of modules" in text(import_map)) == (not upward, not cycle)
