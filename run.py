"""Longhaul: `python run.py model=lavo task=lra/listops`. `python run.py --help` shows what can be typed."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

try:
    from longhaul.__main__ import main
except KeyboardInterrupt:  # Ctrl-C while the packages are imported
    print("stopped", file=sys.stderr)
    sys.exit(130)
except ModuleNotFoundError as error:
    package = str(error.name).split(".")[0]
    if (ROOT / package).is_dir():  # a module of ours
        raise
    told = f"error: {package} is not installed for {sys.executable}: make setup && source .venv/bin/activate"
    print(told, file=sys.stderr)
    sys.exit(2)

if __name__ == "__main__":
    sys.exit(main())
