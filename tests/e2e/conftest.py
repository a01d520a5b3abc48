"""End-to-end tests share the table models of the unit tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "unit"))
