"""Receipts: what an honest run writes verifies; whatever is changed in the file is found."""

from __future__ import annotations

import copy
import json

import pytest
import trio
from arena import Arena, ignore
from test_roles import close_draft, target
from test_roles_money import Desk, at_till
from test_roles_settling import paid_part

from node.network.memory import run_deterministically
from node.roles.lanes import LaneBook
from node.roles.purse import Payment
from node.roles.receipt import ReceiptError, build, verify
from settlement.records import Mode


def receipt(mode: Mode = Mode.COUPLED) -> dict:
    arena = Arena(seed=11)
    plan = arena.plan(mode=mode, max_tokens=16, stop_ids=())

    async def main() -> dict:
        seats = {name: arena.seat(name) for name in ("client", "drafter", "verifier")}
        arena.list_drafter(seats["drafter"])
        arena.list_verifier(seats["verifier"])
        async with trio.open_nursery() as nursery:
            await nursery.start(arena.verifier, seats["verifier"], target(), 3)
            await nursery.start(arena.drafter, seats["drafter"], close_draft())
            async with arena.client(seats["client"]) as client:
                await client.generate(plan, ignore)
                outcome = await client.generate(
                    arena.plan(mode=mode, max_tokens=16, stop_ids=()), ignore
                )
                made = build(outcome, client.node.journal, "text")
            nursery.cancel_scope.cancel()
        return json.loads(json.dumps(made))

    return run_deterministically(11, main)


@pytest.mark.parametrize("mode", [Mode.COUPLED, Mode.REJECTION])
def test_an_honest_receipt_verifies_without_network(mode: Mode) -> None:
    data = receipt(mode)
    checked = verify(data)
    assert checked.paid
    assert len(checked.tokens) == 16
    assert checked.checks["rounds under a voucher's root"] == checked.rounds
    assert checked.checks["voucher signatures"] == 3


def places(value, path=()):
    """Every scalar of a JSON value, with its path."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, (*path, index))
    else:
        yield path, value


# What the file says for people and machines but what proves nothing.
UNPROVEN = {"text", "seconds", "lossless", "sessionId"}


def test_every_changed_scalar_is_found() -> None:
    data = receipt()
    found = 0
    for path, value in places(data):
        if UNPROVEN & set(path):
            continue
        changed = copy.deepcopy(data)
        at = changed
        for key in path[:-1]:
            at = at[key]
        if isinstance(value, str) and len(value) > 4:
            middle = len(value) // 2
            digit = "0" if value[middle] != "0" else "1"
            at[path[-1]] = value[:middle] + digit + value[middle + 1 :]
        elif isinstance(value, str):
            at[path[-1]] = str(int(value) + 1) if value.isdigit() else value + "0"
        elif isinstance(value, int):
            at[path[-1]] = value + 1
        else:
            continue
        with pytest.raises(ReceiptError):
            verify(changed)
        found += 1
    assert found > 120


def test_a_missing_signature_is_not_paid() -> None:
    data = receipt()
    data["vouchers"][0]["signatures"][1] = None
    assert not verify(data).paid


@pytest.mark.parametrize("key", ["domain", "prompt", "sessions", "vouchers", "nonces"])
def test_a_missing_part_is_named(key: str) -> None:
    data = receipt()
    del data[key]
    with pytest.raises(ReceiptError):
        verify(data)


@pytest.mark.parametrize("junk", [None, [], "x", {}, {"format": "verdraft/receipt/2"}])
def test_junk_is_refused(junk) -> None:
    with pytest.raises(ReceiptError):
        verify(junk)


def test_a_signature_that_is_on_its_way_takes_no_paid_rounds_back() -> None:
    """The newest voucher lacks D's signature; the one before has all three over its rounds."""

    async def story(desk: Desk) -> None:
        purse = desk.client.purse

        async def without(book: LaneBook, payment: Payment, role: str, peer: bytes) -> Payment:
            return payment if role == "drafter" else await asked(book, payment, role, peer)

        asked, purse._ask = purse._ask, without
        assert await purse.pay(desk.lane, patience=5.0) is not None
        made = build(desk.outcome, desk.client.node.journal, "text")
        rounds = made["sessions"][0]["rounds"]
        signed = [all(made["vouchers"][entry["voucher"]]["signatures"]) for entry in rounds]
        assert signed == [True] * 5 + [False] * (len(rounds) - 5)
        assert not verify(json.loads(json.dumps(made))).paid

    at_till(12, paid_part(5, story))
