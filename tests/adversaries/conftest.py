"""The gallery plays on the in-memory network of the end-to-end tests."""

import sys
from pathlib import Path

_TESTS = Path(__file__).parent.parent
for folder in ("unit", "e2e", "adversaries"):
    sys.path.insert(0, str(_TESTS / folder))
