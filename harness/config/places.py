"""Where the code, its configuration and the published numbers lie: in a clone, or in an environment (a wheel)."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]  # the folder of the packages harness, tasks and models
CLONE = ROOT if (ROOT / "run.py").is_file() else None
CONF = (CLONE or ROOT / "longhaul") / "conf"
LEDGER = CLONE / "results" / "paper" if CLONE else ROOT / "longhaul" / "paper"
