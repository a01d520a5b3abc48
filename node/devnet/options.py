"""What a devnet run is asked to do, and what its operators are."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

TOKEN: Final = 10**18
# Open questions, and work on a text that is given: speculation pays where an answer can be guessed.
PROMPTS: Final = (
    "What is the difference between a list and a tuple in Python?",
    "Write this notice as a list:\n\nThe ferry leaves the northern pier at seven in the morning "
    "and again at noon. Tickets are sold on board, and bicycles travel free of charge except on "
    "the last Sunday of each month. Dogs are welcome on the upper deck.",
    "Here is a letter. Write it out again without mistakes:\n\nDear neighbours, the watre will be "
    "turned off on Tuesday from nine until one. Please fill a few botles beforehand. The work is "
    "done by the city and costs us nothing.",
    "Why does the moon change its shape over a month?",
    "Explain in two sentences what a hash function is.",
)
TINY_PROMPTS: Final = (
    "It is a truth universally acknowledged, that",
    "In the beginning God created",
    "The following example shows how to use the module:",
    "And it came to pass, that",
    "She could not help",
)


@dataclass(frozen=True)
class DevnetOptions:
    """Everything `verdraft devnet` can be told."""

    prompts: tuple[str, ...] = ()
    sessions: int = 3
    mode: str = "coupled"
    temperature: float | None = None
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None
    max_tokens: int = 64
    min_window: int = 0
    tiny: bool = False
    serve: bool = False
    keep: Path | None = None
    latency_ms: float = 0.0
    json: Path | None = None
    tier: str = "exact"
    settle_at_end: bool = False  # nothing goes on chain while prompts run
    draft: str | None = None  # model of the first drafter; None: the shipped one if there is one
    panel: bool = False

    @property
    def dtype(self) -> str:
        """Arithmetic of the target, as a node's config names it."""
        return "exact" if self.tier == "exact" else "float32"

    @property
    def draft_dtype(self) -> str:
        """Arithmetic of the drafts. They need not have the target's, and integers are fastest."""
        return "exact"

    @property
    def roster(self) -> tuple[tuple[str, str], ...]:
        """(name, role) of every node."""
        return PANEL_ROSTER if self.panel else ROSTER

    @property
    def audits_drafts(self) -> bool:
        """Whether auditors have the draft model: only in rejection mode does D answer for it."""
        return self.mode == "rejection"

    @property
    def target(self) -> str:
        return "tiny-target" if self.tiny else "smollm2-135m-instruct"

    def prompt(self, number: int) -> str:
        given = self.prompts or (TINY_PROMPTS if self.tiny else PROMPTS)
        return given[number % len(given)]

    @property
    def runs(self) -> int:
        """Sessions to run: at least one per prompt that was given."""
        return max(self.sessions, len(self.prompts))


@dataclass(frozen=True)
class Operator:
    """One node of the devnet: its role, key and files. `draft`: the model that it drafts with, or
    runs again as an auditor."""

    name: str
    role: str
    folder: Path
    key: bytes = field(repr=False)
    address: bytes
    beneficiary: bytes
    draft: str = ""

    @property
    def keystore(self) -> Path:
        return self.folder / "operator.json"

    @property
    def password_file(self) -> Path:
        return self.folder / "password"

    @property
    def config_file(self) -> Path:
        return self.folder / "node.toml"

    @property
    def ready_file(self) -> Path:
        return self.folder / "ready.json"

    @property
    def log_file(self) -> Path:
        return self.folder / "node.log"


ROSTER: Final = (
    ("bootstrap", "bootstrap"),
    ("drafter-1", "drafter"),
    ("drafter-2", "drafter"),
    ("verifier-1", "verifier"),
    ("verifier-2", "verifier"),
    ("auditor-1", "auditor"),
    ("auditor-2", "auditor"),
    ("auditor-3", "auditor"),
    ("client-1", "client"),
)
# One auditor accuses, and five are left for its jury.
PANEL_ROSTER: Final = (
    *ROSTER,
    ("auditor-4", "auditor"),
    ("auditor-5", "auditor"),
    ("auditor-6", "auditor"),
)
