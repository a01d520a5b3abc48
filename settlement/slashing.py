"""How a slash is divided: the mirror of StakeVault.slash and of the courts' cut for victims. Pure.

Whatever is divided, a quarter is burned before anyone is paid, an accuser never gets more than
half, and nothing is paid beyond what was there to take. So slashing oneself through a friend always
costs.

Rounding: the slash and its burned quarter up, shares of it down; what rounding leaves is burned.
Amounts are integers in units of the stake token; shares in hundredths of a percent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

BPS: Final = 10_000
MAX_VICTIMS: Final = 16
MAX_CHALLENGER_BPS: Final = 5_000
_MAX_LOSS: Final = (1 << 128) - 1


class SlashError(ValueError):
    """A stake, share or loss that no slash can have."""


@dataclass(frozen=True)
class Split:
    """What one slash took and where it went: total = victims + challenger + burned.

    `to_victims` has one amount for each loss given, zero for those past the sixteenth.
    """

    total: int
    to_victims: tuple[int, ...] = ()
    to_challenger: int = 0

    @property
    def burned(self) -> int:
        return self.total - sum(self.to_victims) - self.to_challenger

    @property
    def returned(self) -> int:
        """What came back to anyone at all."""
        return self.total - self.burned


def slash_total(stake: int, bps: int) -> int:
    """⌈stake · min(bps, 10000) / 10000⌉: of the role's whole stake, what is leaving included."""
    if stake < 0 or bps < 0:
        raise SlashError(f"neither a stake of {stake} nor a share of {bps} is possible")
    return -(-stake * min(bps, BPS) // BPS)


def slash(
    stake: int,
    bps: int,
    losses: Sequence[int] = (),
    challenger_bps: int = 0,
    has_challenger: bool = True,
) -> Split:
    """Divide a slash of `stake`. In integers, with ⌊⌋ at each division:

    1. total = `slash_total`; rest = total − ⌈total / 4⌉.
    2. asked = sum of the first sixteen losses. Each of them gets its loss, or rest · loss / asked
       where asked is more than the rest.
    3. The challenger, if there is one, gets total · min(challengerBps, 5000) / 10000, at most what
       the victims have left of the rest.
    4. Everything else is burned.

    Args:
        losses: victims' losses in stake units, in the order in which a judge names them; what is
            beyond 2**128 − 1 counts as that. The vault passes over a victim without an address;
            leave it out only after dividing, for its loss counts in `asked`.

    Raises:
        SlashError: a negative stake, share or loss.
    """
    if any(loss < 0 for loss in losses) or challenger_bps < 0:
        raise SlashError(f"a loss or a reward is below zero: {list(losses)}, {challenger_bps}")
    total = slash_total(stake, bps)
    if total == 0:
        return Split(0, (0,) * len(losses))
    rest = total - -(-total // 4)
    heard = [min(loss, _MAX_LOSS) for loss in losses[:MAX_VICTIMS]]
    asked = sum(heard)
    victims = [rest * loss // asked if asked > rest else loss for loss in heard]
    victims += [0] * (len(losses) - len(heard))
    reward = total * min(challenger_bps, MAX_CHALLENGER_BPS) // BPS if has_challenger else 0
    return Split(total, tuple(victims), min(reward, rest - sum(victims)))


def court_losses(
    stake: int, fault_bps: int, victim_bps: int, client_loss: int, harmed_loss: int
) -> tuple[int, int]:
    """(client's, other payee's) losses as FaultCourt and AuditPanel hand them to the vault: cut to
    victimBps of the slash, for prices that a session's parties made up must bring them no more."""
    if min(stake, fault_bps, victim_bps, client_loss, harmed_loss) < 0:
        raise SlashError(f"a loss is below zero: {client_loss}, {harmed_loss}")
    total = client_loss + harmed_loss
    most = (stake * fault_bps // BPS) * victim_bps // BPS
    if total <= most:
        return client_loss, harmed_loss
    return client_loss * most // total, harmed_loss * most // total
