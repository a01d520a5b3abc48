"""Where the repository's files lie, for the parts of the shell that read them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
CONTRACTS: Final = ROOT / "contracts"
CACHE: Final = ROOT / ".cache"
