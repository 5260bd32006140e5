"""The map of imports: rooms, their floors and the arrows between them, read from the source with `ast`.

    python tests/import_map.py   # the rooms of harness/ and their modules, arrows with the number of imports

`tests/test_floors.py` tests the same map. An arrow goes from the importing module to the imported one.
"""

import ast
import sys
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# the rooms of harness/config, lowest first, with their files, which lie side by side
CONFIG = {
    # the typed keys, the readers of yaml and plain values, and what may be built
    "schema": "allowed overrides places plain schema search source_code validation yaml_files",
    "untrusted": "own_files untrusted",  # the door for configurations of other people
    "compose": "compose option_files",  # overrides and yamls -> a configuration, through Hydra
    "names": "table_files table_rows",  # typed words, names, and the rows of tables
    "build": "build declared instantiate",  # a configuration -> task and model
    "cell": "cell",  # a configuration -> the identity of a cell
    "plan": "sweep variants",  # commands and tables -> cells
}
CONFIG_ROOM = {name: room for room, names in CONFIG.items() for name in names.split()}
# lowest first: a module imports only from its own floor and from those before it
FLOORS = (
    *("models.ops", "models.layers", "models.attention", "models.backbones", "models.generation"),
    *("tasks", "harness.masking", "harness.errors", "harness.progress"),
    *(f"harness.config.{room}" for room in CONFIG),
    *("harness.config", "harness.records", "harness.training"),
    *("harness.report.stats", "harness.report.render", "harness.report.spec", "harness.report.scores"),
    *("harness.report.pages", "harness.report.plots", "harness.report.spec_files", "harness.report.site"),
    *("harness.report", "harness.bench", "harness.launch", "harness.commands"),
    "longhaul",
    "run",
)


@dataclass(frozen=True)
class Module:
    name: str  # harness.launch.local
    path: Path

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text(encoding="utf-8"))

    @cached_property
    def imports(self) -> frozenset[str]:
        """Dotted names that are imported anywhere in the file; `from a import b` gives a and a.b."""
        names = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                # "." would be no name: test_floors refuses relative imports
                package = "." * node.level + (node.module or "")
                names |= {package, *(f"{package}.{alias.name}" for alias in node.names)}
        return frozenset(names)

    @property
    def floor(self) -> int | None:
        return floor(self.name)

    @property
    def room(self) -> str:
        return room(self.name)


def placed(name: str) -> str:
    """A dotted name with the room of harness/config that its file belongs to."""
    head, _, rest = name.removeprefix("harness.config.").partition(".")
    is_config = name.startswith("harness.config.") and head in CONFIG_ROOM
    return ".".join(filter(None, ("harness.config", CONFIG_ROOM[head], head, rest))) if is_config else name


def floor(name: str) -> int | None:
    """Index in FLOORS of the floor that a module belongs to; None for a foreign module."""
    name = placed(name)
    return next((i for i, top in enumerate(FLOORS) if name == top or name.startswith(f"{top}.")), None)


def room(name: str) -> str:
    """The package of a module; `harness.errors` and `run` are rooms of their own."""
    name = placed(name)
    return name.rpartition(".")[0] if name not in FLOORS else name


class ImportMap:
    """All modules of models/, tasks/, harness/, longhaul/ and run.py."""

    def __init__(self, root: Path = ROOT):
        paths = [
            path for top in ("models", "tasks", "harness", "longhaul") for path in sorted((root / top).rglob("*.py"))
        ]
        modules = [Module(".".join(path.relative_to(root).with_suffix("").parts), path) for path in paths]
        modules.append(Module("run", root / "run.py"))
        self.modules = {module.name: module for module in modules if not module.name.endswith(".__init__")}
        self.packages = {module.name.removesuffix(".__init__"): module for module in modules} | self.modules

    @cached_property
    def arrows(self) -> dict[str, set[str]]:
        """Module -> modules that it imports."""
        return {name: set(module.imports & self.modules.keys()) for name, module in self.modules.items()}

    def upward(self) -> list[str]:
        """Imports of a higher floor, as `importing -> imported`."""
        return [
            f"{module.name} -> {name}"
            for module in self.packages.values()
            if module.floor is not None
            for name in sorted(module.imports)
            if (floor(name) or 0) > module.floor and name != "harness.config"  # the package: its files are in its rooms
        ]

    def cycle(self) -> list[str]:
        """The modules of one import cycle; empty if there is none."""
        return find_cycle(self.arrows)

    def room_cycle(self) -> list[str]:
        """The rooms of one cycle, packages inside a room counted as rooms; empty if there is none."""
        arrows: dict[str, set[str]] = {}
        for source, target in self.room_arrows():
            arrows.setdefault(source, set()).add(target)
        return find_cycle(arrows)

    def room_arrows(self) -> Counter[tuple[str, str]]:
        """(importing room, imported room) -> number of imports between their modules."""
        pairs = ((room(a), room(b)) for a, imported in self.arrows.items() for b in imported)
        return Counter(pair for pair in pairs if pair[0] != pair[1])

    def rooms(self, package: str = "harness") -> dict[str, list[Module]]:
        """Room -> its modules; the highest floor first."""
        by_room: dict[str, list[Module]] = {}
        for module in sorted(self.modules.values(), key=lambda module: (-(module.floor or 0), module.name)):
            if module.name.split(".")[0] == package:
                by_room.setdefault(module.room, []).append(module)
        return by_room


def find_cycle(arrows: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def text(import_map: ImportMap) -> str:
    """The rooms of harness/ with their arrows, then a verdict."""
    arrows = import_map.room_arrows()
    lines = ["floors, lowest first: " + " < ".join(FLOORS), ""]
    for name, modules in import_map.rooms().items():
        below = {target: count for (source, target), count in sorted(arrows.items()) if source == name}
        lines.append(f"{name}: {', '.join(module.name.rpartition('.')[2] for module in modules)}")
        lines += [f"    -> {target} ({count})" for target, count in below.items()]
    inside = {pair: n for pair, n in arrows.items() if all(room.startswith("harness") for room in pair)}
    lines += ["", f"harness/: {len(import_map.rooms())} rooms, {len(inside)} arrows, {sum(inside.values())} imports"]
    lines += [f"arrow up: {arrow}" for arrow in import_map.upward()] or ["no arrow up"]
    for kind, cycle in (("modules", import_map.cycle()), ("rooms", import_map.room_cycle())):
        lines.append(f"cycle of {kind}: {' -> '.join(cycle)}" if cycle else f"no cycle of {kind}")
    return "\n".join(lines)


def main() -> int:
    import_map = ImportMap()
    print(text(import_map))
    return 1 if import_map.upward() or import_map.cycle() else 0


if __name__ == "__main__":
    sys.exit(main())
