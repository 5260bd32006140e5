"""A script without `if __name__ == "__main__":` that makes data in several processes runs once."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
print("the script runs")
from tasks.workers import process_pool
with process_pool(2) as pool:
    print(sorted(pool.map(abs, [-3, -2, -1])))
"""


def test_worker_processes_do_not_run_the_script_again(tmp_path):
    script = tmp_path / "plain.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (done.stdout, done.stderr, done.returncode) == ("the script runs\n[1, 2, 3]\n", "", 0)
