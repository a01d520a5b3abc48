"""What the vault takes and how it divides it is the same in Python and in Solidity."""

from __future__ import annotations

from random import Random

import pyrevm
import pytest
from evm import Deployed

from settlement.chain.compile import compile_sources
from settlement.chain.contracts import Role
from settlement.chain.paths import CONTRACTS, ROOT
from settlement.slashing import Split, slash

OWNER, JUDGE, CHALLENGER = (bytes([byte]) * 20 for byte in (1, 2, 3))
HOUR, DAY = 3600, 86400
TIMES = (7 * DAY, DAY, DAY, 2 * DAY, 4 * DAY, 2 * DAY, 18 * DAY)


@pytest.fixture(scope="module")
def vault() -> Deployed:
    names = ("StakeVault", "ModelRegistry", "DevToken")
    paths = [CONTRACTS / f"{name}.sol" for name in names]
    artifacts = compile_sources({p.relative_to(ROOT).as_posix(): p.read_text() for p in paths})
    evm = pyrevm.EVM(spec_id="PRAGUE")
    token = Deployed(evm, artifacts.require("DevToken"), OWNER, OWNER)
    registry = Deployed(evm, artifacts.require("ModelRegistry"), OWNER, OWNER)
    vault = Deployed(
        evm,
        artifacts.require("StakeVault"),
        OWNER,
        OWNER,
        OWNER,
        token.address,
        registry.address,
        HOUR,
        TIMES,
    )
    vault.call("setSlasher", JUDGE, True)
    vault.token = token  # type: ignore[attr-defined]
    return vault


def _staked(vault: Deployed, number: int, stake: int) -> bytes:
    """A new operator with that verifier stake."""
    operator = number.to_bytes(20, "big")
    token: Deployed = vault.token  # type: ignore[attr-defined]
    token.call("mint", operator, stake)
    token.call("approve", vault.address, stake, sender=operator)
    vault.call("stake", operator, operator, Role.VERIFIER, stake, [], sender=operator)
    return operator


def _slashed(vault: Deployed, number: int, case: tuple[int, int, list[int], int]) -> Split:
    """What the contract says of (stake, bps, losses, challengerBps)."""
    stake, bps, losses, reward = case
    operator = _staked(vault, number, stake)
    victims = [((index + 100).to_bytes(20, "big"), loss) for index, loss in enumerate(losses)]
    fault = number.to_bytes(32, "big")
    before = [_vested(vault, who) for who, _loss in victims]
    ((total, burned, to_victims, to_challenger),) = vault.call(
        "slash", operator, Role.VERIFIER, bps, victims, CHALLENGER, reward, fault, sender=JUDGE
    )
    got = tuple(
        _vested(vault, who) - had for (who, _loss), had in zip(victims, before, strict=True)
    )
    assert sum(got) == to_victims
    assert total == to_victims + to_challenger + burned
    left = vault.call("slashable", operator, Role.VERIFIER)[0]
    assert left == stake - total
    return Split(total, got, to_challenger)


def _vested(vault: Deployed, who: bytes) -> int:
    (slice_,) = vault.call("sliceOf", 18 * DAY + vault.evm.env.block.timestamp)
    (amount,) = vault.call("vestingOf", who, slice_ + 1)
    return int(amount)


def _cases(count: int) -> list[tuple[int, int, list[int], int]]:
    rng = Random("slashes")
    whole = 10**21
    fixed = [
        (1, 1, [], 0),
        (1, 10_000, [1], 5_000),
        (3, 5_000, [1, 1], 2_500),
        (whole, 5_000, [whole // 100], 2_500),
        (whole, 5_000, [whole, 2 * whole], 5_000),
        (whole + 7, 10_001, [2**200, 1], 9_999),
        (whole, 500, [1] * 18, 400),
    ]
    random = [
        (
            rng.randrange(1, 1 << rng.randrange(1, 90)),
            rng.choice((1, 500, 5_000, 10_000, rng.randrange(1, 12_000))),
            [rng.randrange(1 << rng.randrange(1, 90)) for _ in range(rng.randrange(4))],
            rng.choice((0, 400, 2_500, 5_000, 8_000)),
        )
        for _ in range(count)
    ]
    return fixed + random


@pytest.mark.parametrize("count", [60, pytest.param(2_000, marks=pytest.mark.slow)])
def test_a_slash_is_divided_alike(vault: Deployed, count: int) -> None:
    for number, case in enumerate(_cases(count), start=1 + 10_000 * count):
        assert _slashed(vault, number, case) == slash(*case), case
