"""The process of one part: `python -m benchmarks.gpu.process <part> <device> <until> <folder> <tiny|full>`.

`benchmarks.gpu` starts it; `until` is a time.time(). Each row is printed, and written to `<folder>/<part>.jsonl`
at once.
"""

import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.gpu.part import END, FAILED, UNFINISHED, OutOfTimeError, Part, Place, Row, row

THREADS = 8  # of the CPU at most: on its small tensors a hundred would wait for each other
# part -> module and function: a part imports what the others do not need
FUNCTIONS = {
    "models": ("models", "part"),
    "repeat": ("cells", "repeated"),
    "devices": ("cells", "several_devices"),
    "compile": ("compiled", "part"),
    "speed": ("speed", "part"),
    "cell": ("cells", "paper_cell"),
}


def function_of(name: str) -> Part:
    module, function = FUNCTIONS[name]
    return getattr(importlib.import_module(f"benchmarks.gpu.{module}"), function)


def run_part(name: str, place: Place, tell: Callable[[Row], None]) -> None:
    """Tell the rows of a part; an error that ends it is a row, too, also one of an import."""
    from harness.errors import one_line

    try:
        for each in function_of(name)(place):
            tell(each)
    except OutOfTimeError:
        tell(row(name, UNFINISHED, "the time was over"))
    except Exception as error:
        tell(row(name, FAILED, f"{type(error).__name__}: {one_line(error)[:400]}"))


def shown(each: Row) -> str:
    """A row on the terminal."""
    head = f"  {each['name']}" + (f" ({each['pattern']})" if each.get("pattern") else "")
    if "value" in each:
        value = "never" if each["value"] is None else f"{each['value']:.4g} {each['unit']}".strip()
        return f"{head}: {value} (goal {'≥' if each['at_least'] else '≤'} {each['goal']:g})"
    return f"{head}: {each['state']}" + (f": {each['text']}" if each["text"] else "")


def main(arguments: list[str]) -> None:
    import torch

    torch.set_num_threads(min(THREADS, torch.get_num_threads()))
    name, device, until, folder, sizes = arguments
    place = Place(torch.device(device), float(until) - time.time(), Path(folder) / name, tiny=sizes == "tiny")
    place.folder.mkdir(parents=True, exist_ok=True)
    with (Path(folder) / f"{name}.jsonl").open("w", encoding="utf-8") as file:

        def write(each: Row) -> None:
            file.write(json.dumps(each) + "\n")
            file.flush()

        def tell(each: Row) -> None:
            print(shown(each), flush=True)
            write(each)

        run_part(name, place, tell)
        write(END)


if __name__ == "__main__":
    main(sys.argv[1:])
