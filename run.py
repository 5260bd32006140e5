"""Longhaul: `python run.py model=lavo task=lra/listops`. `python run.py --help` shows what can be typed."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from longhaul.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
