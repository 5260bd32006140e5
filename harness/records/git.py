"""git as this project calls it: without settings from the environment and without programs that a setting names.

Variables such as GIT_CONFIG_COUNT add settings, others name another repository, and settings such as `core.fsmonitor`
name programs that git starts.
"""

import os
import subprocess
from pathlib import Path

COMMAND = ("git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "--no-pager")


def git_output(root: Path, *arguments: str, timeout_s: float = 60) -> bytes | None:
    """The output of git in a folder; None if git is not installed, fails or does not answer."""
    command = [*COMMAND, "-C", str(root), *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        process = subprocess.run(command, capture_output=True, check=True, timeout=timeout_s, env=environment)
    except (OSError, subprocess.SubprocessError):
        return None
    return process.stdout
