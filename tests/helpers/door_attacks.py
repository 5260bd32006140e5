"""Hostile folders, records, measurements, names and texts for each function of `import longhaul`, by function.

An attack takes a `Door`: copies of an exported model, of records and of a measurement, and a file of the user.
"""

import functools
import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

import longhaul
from tests.helpers.hostile_door import (
    CREATE,
    EXPORTED,
    NAMES,
    PLACES,
    SPAWN,
    SYSTEM,
    TERMINAL,
    Door,
    header,
    nested,
    tensor,
)


@functools.cache
def demo() -> Any:
    return longhaul.load("demo/lavo")


CONFIG, RECORD = (json.loads((EXPORTED / f"{name}.json").read_text(encoding="utf-8")) for name in ("config", "record"))
WRONG = ("/etc/passwd", TERMINAL, -1, 10**18, 1e308, [SYSTEM], {"paths": 3, "x": SYSTEM}, ["/elsewhere"], "64", 7, 0)


LOAD: list[Callable[[Door], Any]] = [
    *(
        lambda door, part=part, value=value: door.load(part, x=value)
        for part in ("model", "task", "backbone")
        for value in (
            SYSTEM,
            [[SYSTEM]],
            "${oc.env:HF_TOKEN}",
            "\\${oc.env:HF_TOKEN}",
            CREATE,
            f"\\{CREATE}",
            [{"y": SPAWN}],
            nested(90),
            10**400,
            float("nan"),
        )
    ),
    *(
        lambda door, target=target: door.load("model", _target_=target)
        for target in (
            "os.system",
            "models.attention.lavo.torch.save",
            "tasks.lra.listops.ListOps",
            ["x"],
            TERMINAL,
            "models.attention.lavo.LAVO.__init__",
        )
    ),
    *(
        lambda door, part=part, key=key, value=value: door.load(part, **{key: value})
        for (part, key), value in zip(
            [(part, key) for part in CONFIG for key in CONFIG[part]], itertools.cycle(WRONG), strict=False
        )
    ),
    *(
        lambda door, part=part, key=key, value=value: door.load(part, **{key: value})
        for part in (*CONFIG, "x", "trusted_packages", "hydra", "paths")
        for key, value in (("_args_", ["/etc/passwd"]), ("_partial_", True), ("weights", "/etc/passwd"))
    ),
    *(
        lambda door, key=key, value=value: door.load("backbone", **{key: value})
        for key in ("layers", "dim", "ffn_dim", "max_length")
        for value in (200, 32_000, 10**7, 10**9, 10**15)
    ),
    *(
        lambda door, key=key, value=value: door.load("record", **{key: value})
        for key, value in zip(RECORD, itertools.cycle((TERMINAL, {TERMINAL: [TERMINAL, 2]}, nested(90))), strict=False)
    ),
    *(
        lambda door, content=content: door.weights(content)
        for content in (
            b"",
            b"\0" * 8,
            header({}),
            header("{", 1),
            header("[" * 50_000),
            header({}, 2**63),
            header(tensor()),
            header(tensor("F32", (2**31, 2**31, 2**31))),
            header(tensor(shape=(-1,))),
            header(tensor("X9")) + b"0000",
            header(tensor(offsets=(0, 2**62))),
            header({TERMINAL: tensor()["a"]}) + b"0000",
            header({"__metadata__": {"a": {"b": 1}}}),
            header(tensor()) + b"0000",
            b"\x80\x04cos\nsystem\n(S'touch canary'\ntR.",
            b"PK\x03\x04" + b"\0" * 100,
        )
    ),
    *(
        lambda door, text=text: door.instead("config.json", lambda path: path.write_text(text))
        for text in (
            *("[" * 3_000 + "]" * 3_000, '{"model": ' * 3_000 + "1" + "}" * 3_000, "[" * 10**5, "null", "\x00"),
            *('{"model": 1, "task": 2, "backbone": 3}', '{"model": {}, "task": {}, "backbone": {}}'),
            '"' + "x" * 2**20 + '"',
        )
    ),
    *(
        lambda door, name=name, place=place: door.instead(name, place)
        for name in ("config.json", "record.json", "model.safetensors")
        for place in PLACES.values()
    ),
    *(
        lambda door, name=name: longhaul.load(name, **door.paths)
        for name in (*NAMES, Path("/dev/zero"), "demo/../../x", "demo/*", 7)
    ),
    lambda door: repr(door.load("model", name="lavo")),
    lambda door: longhaul.load(door.exported(), "task._target_=os.system", **door.paths),
    lambda door: longhaul.load(door.exported(), **door.paths, **{"task.path": "\0"}),
]
TEXTS: tuple[Any, ...] = (
    "",
    "x" * 200_000,
    TERMINAL,
    "\0",
    "\ud800",
    b"[MAX 1 2 ]",
    None,
    [[1]],
    [float("nan")],
    {"a": 1},
    ["[MAX 1 ]"] * 200,
    "[" * 20_000,
    "\u0660",
    ["", "x"],
    iter(()),
)
MODEL: list[Callable[[Door], Any]] = [
    *(lambda door, text=text: demo().predict(text) for text in TEXTS),
    *(lambda door, text=text: demo().encode(text) for text in TEXTS[:6]),
    *(
        lambda door, given=given: demo().generate("x", **given)
        for given in ({}, {"max_new_tokens": 10**9}, {"temperature": float("nan")}, {"top_k": 10**9}, {"seed": -1})
    ),
    lambda door: longhaul.load("demo/shakespeare/vanilla").generate("\ud800" + TERMINAL, 3),
]
VALUES = (
    TERMINAL,
    "<script>alert(1)</script>",
    "=cmd|' /C calc'!A1",
    "${oc.env:HF_TOKEN}",
    "../../x",
    nested(90),
    10**400,
    "x" * 10**5,
)
FIELDS = (
    "config.model.name",
    "config.task.name",
    "hardware.cpu",
    "versions.torch",
    "data.source",
    "selection.rule",
    "git.sha",
)


def all_readers(door: Door, root: Path) -> None:
    """Every function that reads records reads these, and each finds the good one."""
    cells = longhaul.records(root)
    assert 3000 in cells["seed"].tolist()
    cells._repr_html_(), cells.to_csv(), repr(cells), cells.flat()
    longhaul.check(root, **{"paths.outputs": door.paths["paths.outputs"]})
    longhaul.status(**door.paths)
    assert len(longhaul.predictions(**door.paths, seed=3000))
    if len(cells) > 1:  # else the hostile one is left out
        longhaul.compare(cells.iloc[0], cells.iloc[-1], root=root)._repr_markdown_()
    longhaul.report("demo", records=cells)


RECORDS: list[Callable[[Door], Any]] = [
    *(
        lambda door, field=field, number=number: all_readers(
            door, door.records(field, value=VALUES[(2 * number + 3) % len(VALUES)])
        )
        for number, field in enumerate(FIELDS)
    ),
    *(
        lambda door, value=value: longhaul.records(door.records("config.model.name", value=value)).to_csv()
        for value in VALUES
    ),
    *(lambda door, name=name: longhaul.records(name) for name in (*NAMES, "/proc", "/dev/zero", "/dev", 7)),
    *(
        lambda door, name=name: longhaul.records(door.records(), model=name)
        for name in (*NAMES, nested(90), {"a": 1}, {1, 2}, b"x")
    ),
    *(lambda door, place=place: longhaul.records(beside(door.records(), place)) for place in PLACES.values()),
    *(
        lambda door, name=name: longhaul.compare(name, name, root=door.records())
        for name in (*NAMES, None, b"x", {"id": 7}, {"id": TERMINAL})
    ),
    *(lambda door, name=name: longhaul.report(name) for name in (*NAMES, None, ["demo"])),
    *(lambda door, name=name: longhaul.figure(name) for name in (*NAMES, None)),
    *(
        lambda door, column=column, value=value: longhaul.report(
            "demo", records=longhaul.records(door.records()).assign(**{column: [value]})
        )
        for column, value in (
            ("model", TERMINAL),
            ("config", "x"),
            ("config", None),
            ("score", float("nan")),
            ("seed", 10**18),
            ("tested", {"acc": "x"}),
            ("status", TERMINAL),
            ("changed", 7),
            ("baselines", 7),
        )
    ),
    *(
        lambda door, place=place: longhaul.predictions(**(door.scores(place) and door.paths))
        for place in PLACES.values()
    ),
    *(
        lambda door, content=content: longhaul.predictions(**(door.scores(content) and door.paths))
        for content in (b"", b"x" * 10**6, b"PK\x05\x06" + b"\0" * 18, b"\x93NUMPY\x01\x00" + b"(" * 10**4)
    ),
]


def beside(root: Path, place: Callable[[Path], object]) -> Path:
    """A hostile file beside the good record; `place` makes it."""
    place(next(root.rglob("*.json")).with_name("evil.json"))
    return root


REST: list[Callable[[Door], Any]] = [
    *(lambda door, name=name: longhaul.measurements(name) for name in (*NAMES, "/proc", "/dev/zero", 7)),
    *(
        lambda door, key=key, value=value: longhaul.measurements(door.measured(**{key: value}))
        for key, value in (
            ("points", 7),
            ("points", [7]),
            ("points", [{"status": TERMINAL}]),
            ("points", None),
            ("hardware", 7),
            ("settings", [1]),
            ("name", TERMINAL),
            ("kind", TERMINAL),
            ("x", nested(90)),
            ("points", [{"status": "ok", "ms": nested(50)}]),
        )
    ),
    *(
        lambda door, place=place: longhaul.measurements(instead_of_a_measurement(door, place))
        for place in PLACES.values()
    ),
    *(
        lambda door, name=name, content=content: longhaul.status(**door.runs(name, content))
        for name in ("attempt.json", "heartbeat.json", ".hydra/overrides.yaml")
        for content in (b"[" * 10**5, b"\xff\0", b"", b"7", os.mkfifo, os.mkdir)
    ),
    *(
        lambda door, content=content: longhaul.curves(**door.runs("metrics.csv", content))
        for content in (b"\0" * 10**6, os.mkfifo, b"step,val\n1e999,x\n")
    ),
    *(
        lambda door, name=name, verb=verb: getattr(longhaul, verb)(model=name)
        for name in ("../../x", TERMINAL, "x" * 100_000, "${oc.env:HF_TOKEN}")
        for verb in ("plan", "run", "verify", "bench", "status", "curves")
    ),
    *(
        lambda door, value=value: longhaul.plan(task="lra/listops", budget="smoke", model="latte", **{"model.x": value})
        for value in (
            SYSTEM,
            "a' trusted_packages=[os] '",
            "\\${oc.env:HF_TOKEN}",
            TERMINAL,
            "'\\",
            nested(90),
            10**400,
            float("nan"),
        )
    ),
    *(
        lambda door, value=value: longhaul.bench(model="latte", lengths=value)
        for value in ([10**15], [-1], ["x"], [0], [1.5], [])
    ),
    lambda door: longhaul.attention(type(TERMINAL.replace("\0", ""), (), {"forward": print})),
    lambda door: longhaul.attention(type("os.system", (), {"forward": print, "__module__": "os"})),
    lambda door: longhaul.plan(
        depends_on=["trusted_packages=[os] +model.x={_target_:os.system}"], task="lra/listops", model="latte"
    ),
    lambda door: pd.DataFrame() if longhaul.check("/dev/zero") is None else None,
    lambda door: longhaul.check("\0"),
    lambda door: longhaul.check("x" * 100_000),
]


def instead_of_a_measurement(door: Door, place: Callable[[Path], object]) -> Path:
    folder = door.measured()
    place(folder / "evil.json")
    return folder


ATTACKS = {"load": LOAD, "model": MODEL, "records": RECORDS, "rest": REST}
