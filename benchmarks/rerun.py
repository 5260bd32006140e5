"""Committed scores beside those of the same cells run again with this code: are they the same in distribution?

    python run.py -m model=vanilla,latte task=lra/listops budget=reduced seed=1,2,3,4,5 paths.records=outputs/again
    python -m benchmarks.rerun --records outputs/again [--out FILE]

A cell of the folder is compared with the committed record of the same id. On the same processor, scores are expected to
be equal to the last digit; on another one, products round differently, and training spreads the difference. The signed
rank test of Wilcoxon asks whether the scores that differ are higher on one side.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from scipy.stats import wilcoxon

from benchmarks.baselines import check_out, machine
from benchmarks.side_by_side import Column, markdown, write_page
from harness.config.places import ROOT

COMMITTED = ROOT / "results" / "records"
COLUMNS = (
    Column("cell", 30, left=True),
    Column("seeds", 6),
    Column("mean, committed", 16),
    Column("mean, now", 10),
    Column("largest difference", 18),
    Column("equal", 6),
    Column("processor, committed", 30, left=True),
)


class Repeat(NamedTuple):
    """One seed of a cell: its score in the test in the committed record and in the new one."""

    cell: str
    seed: int
    committed: float
    now: float
    processor: str  # of the committed record

    @property
    def difference(self) -> float:
        return self.now - self.committed


def repeats(records: Path, committed: Path) -> Iterator[Repeat]:
    """The finished cells below `records` that `committed` has, too, under the same name and id."""
    for file in sorted(records.rglob("*.json")):
        before = committed / file.relative_to(records)
        if before.is_file():
            earlier, later = (json.loads(path.read_text(encoding="utf-8")) for path in (before, file))
            if earlier["status"] == later["status"] == "done" and earlier["cell"] == later["cell"]:
                cell = later["cell"]
                name = f"{cell['model']}, {cell['task']}"
                yield Repeat(name, cell["seed"], score(earlier), score(later), earlier["hardware"]["cpu"])


def score(entries: dict[str, Any]) -> float:
    """The score of a record in the test, of the weights that its rule selects."""
    rule = "last" if entries["selection"]["rule"] == "last" else "best"
    return entries["metrics"][rule]["test"][entries["metric"]["name"]]


def document(repeated: Sequence[Repeat], described: dict[str, Any]) -> str:
    by_cell: dict[str, list[Repeat]] = defaultdict(list)
    for repeat in repeated:
        by_cell[repeat.cell].append(repeat)
    rows = [
        (
            cell,
            str(len(seeds)),
            f"{sum(seed.committed for seed in seeds) / len(seeds):.2f}",
            f"{sum(seed.now for seed in seeds) / len(seeds):.2f}",
            f"{max(abs(seed.difference) for seed in seeds):.2f}",
            f"{sum(not seed.difference for seed in seeds)} of {len(seeds)}",
            " and ".join(sorted({seed.processor for seed in seeds})),
        )
        for cell, seeds in sorted(by_cell.items())
    ]
    differing = [repeat.difference for repeat in repeated if repeat.difference]
    test = "All scores are equal."
    if differing:
        mean = sum(differing) / len(differing)
        test = f"The other {len(differing)} differ by {mean:+.2f} on average: p = {wilcoxon(differing).pvalue:.2g}."
    here = ", ".join(f"{key} {value}" for key, value in described.items())
    return f"""# Cells that ran again, beside their committed records

{len(repeated) - len(differing)} of {len(repeated)} scores are equal to the last digit. {test}

{markdown(COLUMNS, rows)}
`python -m benchmarks.rerun --records FOLDER`: test scores in percent, of cells with the same id. p: Wilcoxon's
signed rank test, over the scores that differ. Where the committed record is from another processor, products round
differently.

Measured now on {here}.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=Path, required=True, help="paths.records of the cells that ran again")
    parser.add_argument("--out", type=Path, help="Markdown; the numbers are written next to it")
    options = parser.parse_args()
    if options.out is not None:
        check_out(parser, options.out)
    repeated = list(repeats(options.records, COMMITTED))
    if not repeated:
        parser.error(f"--records: no finished cell below {options.records} is below {COMMITTED}, too")
    described = machine()
    page = document(repeated, described)
    print(page)
    if options.out is not None:
        write_page(options.out, page, {"machine": described, "repeats": [repeat._asdict() for repeat in repeated]})


if __name__ == "__main__":
    main()
