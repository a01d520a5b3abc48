"""A `settle` call that others have made is read for one's own lane, whatever stands beside it."""

from __future__ import annotations

from typing import Any

import pytest

from settlement.chain.abi import Interface
from settlement.chain.compile import compile_contracts
from settlement.chain.lanes import vouchers_in
from settlement.hashing import ZERO32

pytestmark = pytest.mark.slow


def lane(client: bytes, sums0: int = 10 | 5 << 64, leaves: int = 4) -> tuple[Any, ...]:
    """ILaneEscrow.LaneVoucher, in the ABI's order."""
    position = (ZERO32, ZERO32, 0, 0, [0] * 9)
    top = b"\x01" * 32
    return (client, position, 0, [sums0] + [0] * 8, top, leaves, 0, *(ZERO32,) * 5, b"")


@pytest.mark.parametrize("sums0", [1 << 63, 1 << 200])
def test_sums_that_nobody_could_sign_hide_no_other_lane(sums0: int) -> None:
    escrow = Interface("LaneEscrow", compile_contracts()["LaneEscrow"].abi)
    mine, theirs = b"\x03" * 20, b"\x09" * 20
    for lanes in ([lane(mine), lane(theirs, sums0)], [lane(theirs, sums0), lane(mine)]):
        groups = [(b"\x01" * 20, b"\x02" * 20, ZERO32, lanes)]
        found = vouchers_in(escrow, escrow.encode("settle", b"\x07" * 20, groups))
        assert [where.client for where, _ in found] == [mine]
