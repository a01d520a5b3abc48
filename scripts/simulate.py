"""What lying pays: the same as `verdraft simulate`.

python scripts/simulate.py [--json] [--plot FILE] …   (--help says more)
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from node.cli import main

if __name__ == "__main__":
    sys.exit(main(["simulate", *sys.argv[1:]]))
