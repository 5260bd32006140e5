"""The sequence mixers of the frontier beside public CPU forms, on one CPU thread: time, memory and decoding.

    python -m benchmarks.competitors [--rows gla,mamba2] [--peers FOLDER] [--seconds 8] [--out FILE]

A row compares ours with a public form of the same function in float64 (512 tokens), then times forward and backward of
both in turns in float32 (4,096 tokens). Both get the same numbers: queries, keys, values and gates of a public
operator, or the input and the weights of a public layer. The other columns belong to our layer alone: the growth of a
training step's time, the time of one more token after a text, and the peak memory of a training step.

`--out FILE` writes FILE as Markdown and its numbers as JSON next to it after every row. Rows that are not named keep
the numbers that the JSON has, so that a measurement can be continued. `benchmarks.side_by_side` says how time is
measured.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from benchmarks.attention.workloads import CPU
from benchmarks.baselines import DifferentError, attempt, check_arguments, machine, summary
from benchmarks.peers.mixers import DIM, HEADS, PROJECTS, MixerPair
from benchmarks.side_by_side import (
    MISSED,
    Column,
    Ratio,
    difference,
    escaped,
    markdown,
    measure,
    middle,
    printed,
    ratio,
    write_page,
)
from harness.bench.layer import LayerModel
from harness.bench.timing import peak_mb, processor_call, time_alternating
from harness.commands.list import decoding_state
from harness.config.compose import compose, default_arguments
from harness.records.machine import keep_freed_memory
from harness.report.stats.growth import exponent

COMPARED, TIMED = 512, 4096  # tokens
TOLERANCE = 1e-9  # of the largest entry
CONTEXTS = (1024, 16384, 65536)
GROWTH = (4096, 65536)
MEMORY = (4096, 16384)
ROUNDS, TOKEN_ROUNDS = 3, 15


Make = Callable[[Path | None, torch.dtype, int], MixerPair]


class Layer(NamedTuple):
    """Our layer of a row. `timed`: tokens of the comparison of times. `growth`: lengths of the exponent.

    `state`: numbers in the decoding state, if they are not those that the model declares.
    """

    model: str
    settings: Mapping[str, Any] = MappingProxyType({})
    state: str = ""
    timed: int = TIMED
    growth: tuple[int, int] = GROWTH
    note: str = ""


LOOP = "theirs is a loop over tokens: flash-linear-attention has no chunked form of it in torch"
LAYERS = {
    "gla": Layer("gla", note=LOOP),
    "hgrn2": Layer("hgrn2", note=LOOP),
    "mamba2": Layer("mamba2", note="the whole layer"),
    "mamba2_core": Layer("mamba2", note="its recurrence: one decay per head, queries and keys that all heads share"),
    "deltanet": Layer("deltanet"),
    "gated_deltanet": Layer("gated_deltanet"),
    "kda": Layer("kda"),
    "rwkv7": Layer("rwkv7"),
    "based": Layer("based", {"block_types": ["linear"]}, note="the linear layer"),
    "based_conv": Layer(
        "based", {"block_types": ["conv"]}, "(conv - 1) * expand * dim", note="the convolution, a whole layer"
    ),
    "hyena": Layer("hyena", note="the whole layer, N log N by design; a decoded token reads all earlier ones"),
    "forgetting": Layer(
        "forgetting", growth=(4096, 16384), note="softmax attention: its time is quadratic by design"
    ),
    "nsa": Layer(
        "nsa", timed=1024,
        note="16 heads share keys and values, the fewest that theirs takes; it is a loop over tokens, so 1,024 are "
        "timed, with blocks of 16; ours reads N / 64 means per token",
    ),
    "moba": Layer("moba", note="ours reads N / 512 means per token"),
}  # fmt: skip
COLUMNS = (
    Column("row", 14, left=True),
    Column("beside", 54, left=True),
    Column("output", 7),
    Column("gradient", 8),
    Column("ours, ms", 8),
    Column("theirs, ms", 10),
    Column("theirs / ours", 22),
    Column("time ~ N^a", 10),
    *(Column(f"token at {n:,}, µs", 8) for n in CONTEXTS),
    *(Column(f"KiB per token, {n:,}", 8) for n in MEMORY),
    Column("numbers in the state", 0, left=True),
    Column("", 6, left=True),
)


def differences(pair: MixerPair) -> tuple[float, float]:
    """Of the outputs and of the gradients of the inputs. Raises DifferentError beyond the tolerance."""
    ours, theirs = pair.workloads()
    output = difference(ours.forward(), theirs.forward())
    gradients = zip(ours.train(), theirs.train(), strict=False)  # those of the inputs come first
    gradient = max(difference(a, b) for _, (a, b) in zip(pair.inputs, gradients, strict=False))
    if not max(output, gradient) <= TOLERANCE:
        raise DifferentError(f"outputs differ by {output:.1e} of the largest, gradients by {gradient:.1e}")
    return output, gradient


def compared(make: Make, peers: Path | None, timed: int, seconds: float) -> dict[str, Any]:
    """The columns that need the peer."""
    output, gradient = differences(make(peers, torch.float64, COMPARED))
    pair = make(peers, torch.float32, timed)
    ours, theirs = pair.workloads()
    rounds = measure(ours.train, theirs.train, seconds)
    our_seconds, their_seconds = middle(rounds)
    numbers = {"peer": pair.peer, "tokens": timed, "output": output, "gradient": gradient, "rounds": len(rounds)}
    numbers |= {"ours_seconds": our_seconds, "theirs_seconds": their_seconds}
    return numbers | dict(zip(("ratio", "low", "high"), ratio(rounds), strict=True))


def layer_costs(layer: Layer) -> dict[str, Any]:
    """The columns of our layer: seconds per training step and token, KiB per token, by length."""
    cfg = compose([f"model={layer.model}", f"bench.dim={DIM}", f"bench.heads={HEADS}"])
    model = LayerModel(cfg, default_arguments(layer.model) | layer.settings, CPU)

    def seconds(measure: str, lengths: Sequence[int], **options: Any) -> list[float]:
        calls = {str(n): model.prepare(measure, n).call for n in lengths}
        options |= {"stopwatch": processor_call, "retry_disturbed": False, "warm": False}
        return [timing.median for timing in time_alternating(calls, device=CPU, **options).values()]

    steps = seconds("train", layer.growth, rounds=ROUNDS)
    costs = {"growth": list(layer.growth), "step_seconds": steps, "exponent": exponent(layer.growth, steps)}
    costs["token_seconds"] = seconds("decode", CONTEXTS, rounds=TOKEN_ROUNDS, min_sample_s=0.01)
    costs["kib_per_token"] = [peak_mb(model.prepare("train", n).call, CPU) * 1024 / n for n in MEMORY]
    return costs | {"state": layer.state or decoding_state(layer.model)}


def measured(names: Sequence[str], peers: Path | None, seconds: float) -> Iterator[tuple[str, dict[str, Any] | str]]:
    """(name, row as JSON has it, or the reason why there is none)."""
    makers = {name: (project, make) for project in PROJECTS for name, make in project.pairs}
    for name, layer in LAYERS.items():
        if name in names:
            project, make = makers[name]

            def row(name: str = name, layer: Layer = layer, make: Make = make) -> dict[str, Any]:
                numbers = compared(make, peers, layer.timed, seconds)
                return {"model": name} | numbers | layer_costs(layer) | {"note": layer.note}

            yield name, attempt(project, name, row)


def row_cells(row: dict[str, Any]) -> tuple[str, ...]:
    measured = Ratio(row["ratio"], row["low"], row["high"])
    differences = (f"{row[name]:.0e}" for name in ("output", "gradient"))
    times = (f"{1000 * row[side]:,.1f}" for side in ("ours_seconds", "theirs_seconds"))
    tokens = (f"{1e6 * seconds:,.0f}" for seconds in row["token_seconds"])
    memory = (f"{kib:,.1f}" for kib in row["kib_per_token"])
    missed = MISSED if measured.missed else ""
    cells = row["model"], row["peer"], *differences, *times, measured.text, f"{row['exponent']:.2f}"
    return *cells, *tokens, *memory, row["state"], missed


def document(content: dict[str, Any]) -> str:
    """The Markdown page of the JSON that `--out` writes."""
    rows = content["rows"]
    notes = [escaped(f"- {row['model']}: {note}.") for row in rows if (note := "; ".join(notes_of(row)))]
    described = ", ".join(f"{key} {value}" for key, value in content["machine"].items())
    clones = (f"- {name}: {clone['url']} at {clone['commit']}" for name, clone in content["clones"].items())
    parts = [
        "# Sequence mixers beside public CPU forms\n",
        f"{summary(rows)}.\n",
        markdown(COLUMNS, map(row_cells, rows)),
        "`python -m benchmarks.competitors --peers FOLDER`: ours and a public form of the same function, forward and\n"
        f"backward, batch 1, {TIMED:,} tokens, {HEADS} heads, width {DIM}, float32. Milliseconds are processor time,\n"
        "medians of rounds in which both sides take turns. A ratio above 1 means that ours is faster; in brackets a\n"
        f"95 % interval of the median. `output` and `gradient` are the largest differences in float64, {COMPARED}\n"
        "tokens, of the outputs and of the inputs' gradients, as a share of the largest entry.\n",
        "The other columns belong to our layer at the same width: the exponent a of a training step's time between\n"
        f"{GROWTH[0]:,} and {GROWTH[1]:,} tokens, one more token after a text, the peak memory of a training step per\n"
        "token, and the formula of the decoding state.\n",
        f"{escaped(f'Measured on {described}')}.\n",
        "".join(f"{escaped(clone)}\n" for clone in clones),
        "".join(f"{note}\n" for note in notes),
        "".join(f"- not measured: {escaped(text)}\n" for text in dict.fromkeys(content["not_measured"].values())),
    ]
    return "\n".join(part for part in parts if part)


def notes_of(row: dict[str, Any]) -> Iterator[str]:
    if row["note"]:
        yield row["note"]
    if row["growth"] != list(GROWTH):
        yield "a between {:,} and {:,} tokens".format(*row["growth"])
    if row["commit"]:
        yield f"measured at {row['commit']}"


def earlier(out: Path, described: dict[str, Any]) -> dict[str, Any]:
    """The rows of a measurement on this machine to be continued: {name: row or reason}. Empty without one."""
    path = out.with_suffix(".json")
    if not path.is_file():
        return {}
    content = json.loads(path.read_text(encoding="utf-8"))
    here, there = ({k: v for k, v in machine.items() if k != "longhaul"} for machine in (described, content["machine"]))
    if here != there:
        return {}
    commit = content["machine"]["longhaul"]
    rows = {
        row["model"]: row | {"commit": row["commit"] or ("" if commit == described["longhaul"] else commit)}
        for row in content["rows"]
    }
    return rows | content["not_measured"]


def main() -> None:
    clones = [project.clone for project in PROJECTS if project.clone]
    get = [f"cd FOLDER && {clone.get}" for clone in clones]
    get.append(f"pip install {' '.join(dict.fromkeys(name for project in PROJECTS for name in project.packages))}")
    epilog = "all peers, as they were measured:\n" + "".join(f"    {command}\n" for command in get)
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, epilog=epilog, formatter_class=formatter)
    parser.add_argument("--rows", default=",".join(LAYERS), metavar="A,B", help=f"some of {', '.join(LAYERS)}")
    parser.add_argument("--peers", type=Path, help="the folder of the clones")
    parser.add_argument("--seconds", type=float, default=8.0, help="per comparison, about")
    parser.add_argument("--out", type=Path, help="a Markdown file; the numbers go beside it as JSON")
    options = parser.parse_args()
    names = [name for name in options.rows.split(",") if name]
    check_arguments(parser, options)
    if unknown := set(names) - set(LAYERS):
        parser.error(f"no row {', '.join(sorted(unknown))}; there are {', '.join(LAYERS)}")
    torch.set_num_threads(1)
    keep_freed_memory()
    described = machine()
    results = earlier(options.out, described) if options.out else {}
    content = {"machine": described, "clones": {c.name: {"url": c.url, "commit": c.commit} for c in clones}}

    def saved() -> Iterator[dict[str, Any] | str]:
        for name, result in measured(names, options.peers, options.seconds):
            results[name] = result if isinstance(result, str) else result | {"commit": ""}
            if options.out:
                ordered = {name: results[name] for name in LAYERS if name in results}
                content["rows"] = [row for row in ordered.values() if not isinstance(row, str)]
                content["not_measured"] = {name: row for name, row in ordered.items() if isinstance(row, str)}
                write_page(options.out, document(content), content)
            yield result

    rows, _ = printed(COLUMNS, row_cells, saved())
    print(summary(rows))


if __name__ == "__main__":
    main()
