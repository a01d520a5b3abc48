"""What is to be done on the chain, as the watchers say it: each duty with its transaction, its
deadline, the bond it takes and what it pays; and what cannot be done. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from settlement.chain.errors import ChainError, Reverted
from settlement.chain.money import Role
from settlement.chain.send_journal import Call
from settlement.slashing import BPS

# Gas, rounded up, of the calls that are made for their reward; a test holds them to gas.json.
EXPIRE_GAS: Final = 250_000
PROOF_GAS: Final = 700_000  # filing and proof together


class Action(StrEnum):
    """What is to be done."""

    CAPTURE = "capture"
    DRAW = "draw"
    OPEN = "open"
    EXPIRE = "expire"  # take the price of a missed deadline
    DEMAND = "demand"
    ANSWER = "answer"
    CLOSE = "close"  # an answered demand nobody contested
    ASSERT = "assert"  # that the registered model made the drafts
    CONCLUDE = "conclude"
    FLAG = "flag"  # a claim whose rates have failed their test
    FILE = "file"
    PROVE = "prove"
    PULL = "pull"
    UNSEAL = "unseal"  # one's fingerprint, for a jury that has committed
    SEAT = "seat"  # a jury
    DECIDE = "decide"  # a case whose jury is over
    APPEAL = "appeal"
    ACCUSE = "accuse"  # of what only a run of the model can judge
    JOIN = "join"  # the auditors' pool, or follow one's stake in it, or leave it
    COMMIT = "commit"  # to one's answer, as a juror
    REVEAL = "reveal"
    DISMISS = "dismiss"  # a juror that was silent
    ENTER = "enter"  # a sealed ticket, for auditors to answer
    NAME = "name"  # what a ticket has sealed
    COLLECT = "collect"  # a juror's pay, and bonds that the panel gives back


@dataclass(frozen=True)
class Bond:
    """Stake tokens that a call takes from its sender, who must allow `spender` to take them."""

    spender: bytes
    amount: int


@dataclass(frozen=True)
class Price:
    """A slash that a call brings about, and the caller's share of it, in basis points; less the
    stake tokens that it may cost the caller besides."""

    guilty: bytes
    role: Role
    bps: int
    share_bps: int
    less: int = 0

    def reward(self, slashable: int) -> int:
        """Stake tokens for the caller out of that stake."""
        return slashable * self.bps // BPS * self.share_bps // BPS - self.less


@dataclass(frozen=True)
class Duty:
    """One thing to do now.

    Attributes:
        about: names the matter for people: "draw 3/0", "demand 0x12ab…".
        intent: names the transaction for the sender.
        until: unix seconds after which it is too late, or worth less; None: no hurry.
        bond: what it takes. price: what it is made for; then it need only be done if that pays.
        gas: about what it costs, where it has a price.
    """

    action: Action
    about: str
    intent: str
    call: Call
    until: int | None = None
    bond: Bond | None = None
    price: Price | None = None
    gas: int = EXPIRE_GAS


@dataclass(frozen=True)
class Lack:
    """A duty that cannot be done with what is at hand: an operator must see it."""

    action: Action
    about: str
    until: int
    reason: str


@dataclass(frozen=True)
class Now:
    """The newest block."""

    block: int
    time: int


@dataclass(frozen=True)
class Policy:
    """What a key does beyond what it must.

    Attributes:
        draws: it calls draws (anybody may; a verifier leaves it to others).
        patience: seconds over which those who have nothing at stake spread their calls, each at a
            moment of its own, so that not everybody pays for the same one.
        demand_budget: stake tokens that demands of one evidence window may take as bonds. What V
            answers it keeps, so without a bound V could live on the questions of a counterparty.
        demand_after: seconds after a settlement before its evidence is demanded.
    """

    draws: bool = True
    patience: float = 120.0
    demand_budget: int = 0
    demand_after: float = 60.0


@dataclass
class Plan:
    """Duties in the order in which they are to be done, and what lacks."""

    duties: list[Duty] = field(default_factory=list)
    lacks: list[Lack] = field(default_factory=list)

    @contextmanager
    def apart(self, action: Action, about: str, until: int) -> Iterator[None]:
        """One matter among many: what strangers put on the chain and this program cannot read must
        not cost the others their deadlines, so its failure, or a contract's refusal to answer for
        it, becomes a lack. A chain that does not answer fails them all."""
        try:
            yield
        except Reverted as error:
            self.lacks.append(Lack(action, about, until, f"the chain refuses to say: {error}"))
        except ChainError:
            raise
        except Exception as error:
            reason = f"this program fails on it: {type(error).__name__}: {error}"
            self.lacks.append(Lack(action, about, until, reason))
