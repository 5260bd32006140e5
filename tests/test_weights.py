"""Every room keeps to its lines in `tests/weights.toml`. A change that needs more says there what leaves."""

import subprocess
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROOMS = {
    room: lines
    for part in tomllib.loads((ROOT / "tests/weights.toml").read_text()).values()
    for room, lines in part.items()
}


def room_of(file: str) -> str | None:
    """The narrowest room that a file is in: `harness` has what no room below it has."""
    return max((room for room in ROOMS if f"{file}/".startswith(f"{room}/")), key=len, default=None)


def test_each_room_keeps_to_its_lines():
    listed = subprocess.run(["git", "ls-files", "-z", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    files = [file for file in listed.stdout.split("\0") if file and (ROOT / file).is_file()]
    assert files and not (homeless := [file for file in files if room_of(file) is None]), homeless
    lines: Counter[str] = Counter()
    for file in files:
        lines[room_of(file)] += (ROOT / file).read_text(encoding="utf-8").count("\n")
    over = {room: f"{lines[room]} of {most} lines" for room, most in ROOMS.items() if lines[room] > most}
    assert not over, over
    loose = {room: f"{lines[room]} of {most} lines" for room, most in ROOMS.items() if most > 1.02 * lines[room] + 50}
    assert not loose, f"lower them: {loose}"
