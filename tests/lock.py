"""Write constraints.txt and requirements.lock from this environment: `make lock`, after the tests have passed in it.

constraints.txt has the version of every package, requirements.lock their hashes as well: of all files of that version,
for any system. requirements-cpu.lock has the local wheels (UV_FIND_LINKS) that replace a package:
torch for CPUs, which the usual index does not have.
"""

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS, LOCK = ROOT / "constraints.txt", ROOT / "requirements.lock"
CPU_LOCK = ROOT / "requirements-cpu.lock"
HEAD = "# What was tested together (Python {}.{}); made by `make lock`. requirements.lock has the hashes.\n"
OPTIONS = (
    *("--no-deps", "--universal", "--generate-hashes", "--no-header", "--no-annotate", "--quiet"),
    *("--no-emit-index-url", "--no-emit-find-links"),
)


def uv(*arguments: str, **environment: str) -> str:
    command = [str(Path(sys.executable).with_name("uv")), "pip", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **environment}).stdout


def main() -> None:
    frozen = uv("freeze", "--python", sys.executable, "--exclude-editable")
    versions = re.sub(r"\+\w+$|^pip==.*\n", "", frozen, flags=re.MULTILINE)  # 2.13.0+cpu is a build of 2.13.0
    CONSTRAINTS.write_text(HEAD.format(*sys.version_info) + versions, encoding="utf-8")
    locked = uv("compile", str(CONSTRAINTS), *OPTIONS, UV_FIND_LINKS="")
    LOCK.write_text(locked, encoding="utf-8")
    folders = filter(None, re.split("[ ,]", os.environ.get("UV_FIND_LINKS", "")))
    wheels = sorted(wheel for folder in folders for wheel in Path(folder).glob("*+cpu*.whl"))
    CPU_LOCK.write_text("".join(map(line_of, wheels)), encoding="utf-8")
    print(f"{len(versions.splitlines())} packages, {locked.count('--hash=')} hashes, {len(wheels)} builds for CPUs")


def line_of(wheel: Path) -> str:
    name, version = wheel.name.split("-")[:2]
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"


if __name__ == "__main__":
    main()
