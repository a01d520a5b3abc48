"""End-to-end tests share the table models of the unit tests, and how contracts are deployed."""

import sys
from pathlib import Path

for folder in ("unit", "contracts"):
    sys.path.append(str(Path(__file__).parent.parent / folder))
