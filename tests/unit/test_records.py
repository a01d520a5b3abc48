"""The frozen records: hashes as Ethereum computes them, and the rules between fields."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from eth_abi import encode as abi_encode
from eth_account.messages import encode_typed_data
from eth_utils import keccak
from hypothesis import given, settings
from hypothesis import strategies as st
from record_strategies import any_record, orders, records, sums

from settlement.records import (
    BUCKETS,
    LEAF_RECORDS,
    MASS_TOTAL,
    MAX_LANE_COUNT,
    NO_TOKEN,
    SIGNED_RECORDS,
    Claim,
    Domain,
    Lane,
    Manifest,
    Mode,
    Order,
    RoundRecord,
    Sums,
    Tier,
    Voucher,
    extend_context,
    kept_hash,
    next_context,
    prompt_hash,
    salted_fingerprint,
    stop_string_hash,
    top_hash,
)
from settlement.schema import Record, RecordError

DOMAIN = Domain(31337, b"\x42" * 20)
EIP712_DOMAIN = [
    {"name": "name", "type": "string"},
    {"name": "version", "type": "string"},
    {"name": "chainId", "type": "uint256"},
    {"name": "verifyingContract", "type": "address"},
]


def typed_data(record: Record, domain: Domain) -> dict[str, Any]:
    """The record as a wallet is asked to sign it (eth_signTypedData_v4)."""
    kind = type(record)
    message = {
        spec.solidity_name: value for spec, value in zip(kind.specs(), record.to_abi(), strict=True)
    }
    for spec in kind.specs():
        if spec.type_name == "address":
            message[spec.solidity_name] = "0x" + message[spec.solidity_name].hex()
    return {
        "types": {
            "EIP712Domain": EIP712_DOMAIN,
            kind.__name__: [
                {"name": spec.solidity_name, "type": spec.type_name} for spec in kind.specs()
            ],
        },
        "primaryType": kind.__name__,
        "domain": {
            "name": "Verdraft",
            "version": "1",
            "chainId": domain.chain_id,
            "verifyingContract": "0x" + domain.escrow.hex(),
        },
        "message": message,
    }


@pytest.mark.parametrize("kind", SIGNED_RECORDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_digests_are_those_a_wallet_computes(kind: type[Record], data: st.DataObject) -> None:
    record = data.draw(records(kind))
    domain = Domain(
        data.draw(st.integers(1, 2**256 - 1)), data.draw(st.binary(min_size=20, max_size=20))
    )
    message = encode_typed_data(full_message=typed_data(record, domain))
    assert message.header == domain.separator
    assert message.body == record.struct_hash
    assert domain.digest(record) == keccak(b"\x19\x01" + message.header + message.body)


@pytest.mark.parametrize("kind", LEAF_RECORDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_leaf_hashes_are_over_abi_encode(kind: type[Record], data: st.DataObject) -> None:
    leaf = data.draw(records(kind))
    encoded = abi_encode([spec.type_name for spec in kind.specs()], leaf.to_abi())
    type_hash = keccak(kind.type_string().encode())
    assert leaf.leaf_hash == keccak(b"\x00" + type_hash + encoded)


@given(records(Lane))
def test_a_lane_is_named_by_its_five_fields(lane: Lane) -> None:
    types = ["address"] * 4 + ["bytes32"]
    assert lane.id == keccak(abi_encode(types, lane.to_abi()))


@given(
    st.text(min_size=1, max_size=16),
    st.sampled_from(list(Tier)),
    st.lists(st.integers(0, 99), max_size=5),
)
def test_a_model_id_is_over_abi_encode_of_the_manifest(
    name: str, tier: Tier, eos: list[int]
) -> None:
    manifest = Manifest(name, tier, b"\x01" * 32, b"\x02" * 32, 100, tuple(eos), 4096)
    types = "(string,uint8,bytes32,bytes32,uint32,uint32[],uint32)"
    values = (name, int(tier), b"\x01" * 32, b"\x02" * 32, 100, eos, 4096)
    assert manifest.to_abi() == values
    assert manifest.model_id == keccak(abi_encode([types], [values]))


@given(any_record, st.data())
def test_every_field_is_in_the_hash(record: Record, data: st.DataObject) -> None:
    other = data.draw(records(type(record)))
    assert (record == other) == (record.struct_hash == other.struct_hash)
    name = data.draw(st.sampled_from([field.name for field in fields(record)]))
    try:
        mixed = replace(record, **{name: getattr(other, name)})
    except RecordError:  # the fields of two orders need not fit together
        return
    changed = getattr(record, name) != getattr(other, name)
    assert (mixed.struct_hash != record.struct_hash) == changed


def test_domains_separate_chains_and_contracts() -> None:
    separators = {
        Domain(chain, escrow * 20).separator for chain in (1, 2) for escrow in (b"\x01", b"\x02")
    }
    assert len(separators) == 4
    for chain, escrow in ((0, bytes(20)), (2**256, bytes(20)), (1, bytes(19))):
        with pytest.raises(RecordError):
            Domain(chain, escrow)


# ---------------------------------------------------------------- orders


BAD_ORDERS = [
    (Mode.COUPLED, {"mode": 3}, "mode"),
    (Mode.COUPLED, {"seed_policy": 2}, "seed_policy"),
    (Mode.COUPLED, {"disclosure": 3}, "disclosure"),
    (Mode.GREEDY, {"temperature": 1}, "temperature"),
    (Mode.COUPLED, {"temperature": 0}, "temperature"),
    (Mode.COUPLED, {"top_p": 0}, "top_p"),
    (Mode.COUPLED, {"top_p": 65537}, "top_p"),
    (Mode.COUPLED, {"repetition_penalty": 0}, "repetition_penalty"),
    (Mode.COUPLED, {"stop_ids": (2, 1)}, "stop_ids"),
    (Mode.COUPLED, {"stop_ids": (2, 2)}, "stop_ids"),
    (Mode.COUPLED, {"max_tokens": 0}, "max_tokens"),
    (Mode.REJECTION, {"relax_tau": 1}, "relax_tau"),
    (Mode.REJECTION, {"seed_policy": 1}, "seed_policy"),
    (Mode.REJECTION, {"anchor_verifier": bytes(32)}, "anchor_verifier"),
    (Mode.REJECTION, {"anchor_drafter": bytes(32)}, "anchor_drafter"),
    (Mode.COUPLED, {"anchor_verifier": b"\x01" * 32}, "anchor_verifier"),
    (Mode.GREEDY, {"anchor_drafter": b"\x01" * 32}, "anchor_drafter"),
    (Mode.COUPLED, {"noise_version": 2}, "noise_version"),
    (Mode.COUPLED, {"parent_session": b"\x01" * 32, "context_hash": bytes(32)}, "parent_session"),
    (Mode.COUPLED, {"parent_session": bytes(32), "context_hash": b"\x01" * 32}, "parent_session"),
    (
        Mode.COUPLED,
        {
            "parent_session": bytes(32),
            "context_hash": bytes(32),
            "start_position": 1,
            "max_tokens": 9,
        },
        "parent_session",
    ),
]


@pytest.mark.parametrize(("mode", "change", "field"), BAD_ORDERS)
@settings(max_examples=3)
@given(data=st.data())
def test_orders_that_contradict_themselves_are_refused(
    mode: Mode, change: dict[str, Any], field: str, data: st.DataObject
) -> None:
    order = data.draw(orders(mode=mode))
    with pytest.raises(RecordError) as error:
        replace(order, **change)
    assert error.value.field == field


@given(orders())
def test_an_order_says_where_it_starts_and_who_pays(order: Order) -> None:
    first = order.parent_session == bytes(32)
    assert order.start_context == (order.prompt_hash if first else order.context_hash)
    assert order.session_id == order.struct_hash
    assert order.lossless == (order.relax_tau == 0)
    lane = order.lane
    assert (lane.client, lane.drafter, lane.verifier, lane.token, lane.claim_id) == (
        order.client,
        order.drafter,
        order.verifier,
        order.token,
        order.claim_id,
    )


def test_claims_promise_6_to_99_percent() -> None:
    good = Claim(bytes(20), bytes(32), bytes(32), 1, 65536, (6,) * 15 + (99,), 0)
    for rate in (5, 100):
        with pytest.raises(RecordError, match="6 to 99"):
            replace(good, rates=(rate,) + (50,) * 15)
    with pytest.raises(RecordError, match="mode"):
        replace(good, mode=3)


# ---------------------------------------------------------------- sums


small = st.integers(0, MAX_LANE_COUNT // 2)


@given(sums(small), sums(small))
def test_sums_add_lane_by_lane_and_subtract_back(a: Sums, b: Sums) -> None:
    total = a + b
    assert total - b == a
    assert total == b + a
    # The packed words add as whole words: no lane carries into the next. Solidity relies on it.
    words = [x + y for x, y in zip(a.buckets, b.buckets, strict=True)]
    assert words == list(total.buckets)


@given(sums())
def test_sums_are_read_back_from_their_words(value: Sums) -> None:
    assert Sums.from_words(value.output, value.accepted, value.buckets) == value
    assert len(value.packed) == 288
    head = int.from_bytes(value.packed[:32], "big")
    assert head == value.output + (value.accepted << 64)
    for lane, count in enumerate(value.proposed_by_bucket + value.accepted_by_bucket):
        word = int.from_bytes(value.packed[32 * (1 + lane // 4) :][:32], "big")
        assert word >> (64 * (lane % 4)) & (2**64 - 1) == count


@pytest.mark.parametrize("lane", range(2 + 2 * BUCKETS))
def test_no_lane_may_pass_its_top_bit_or_fall_below_zero(lane: int) -> None:
    def with_lane(value: int) -> Sums:
        lanes = [0] * (2 + 2 * BUCKETS)
        lanes[lane] = value
        return Sums(lanes[0], lanes[1], tuple(lanes[2:18]), tuple(lanes[18:]))

    full, one = with_lane(MAX_LANE_COUNT), with_lane(1)
    with pytest.raises(RecordError):
        full + one
    with pytest.raises(RecordError):
        Sums() - one
    with pytest.raises(RecordError):
        with_lane(MAX_LANE_COUNT + 1)


def test_words_with_a_top_bit_are_refused() -> None:
    with pytest.raises(RecordError):
        Sums.from_words(0, 0, (1 << 63,) + (0,) * 7)
    with pytest.raises(RecordError):
        Sums.from_words(0, 0, (0,) * 7)


@given(records(RoundRecord), records(Voucher))
def test_records_give_their_sums(record: RoundRecord, voucher: Voucher) -> None:
    assert record.sums.buckets == record.buckets
    assert (voucher.sums.output, voucher.sums.accepted) == (voucher.output, voucher.accepted)


# ---------------------------------------------------------------- hashes of lists


@given(st.lists(st.integers(0, 2**32 - 1), max_size=6), st.integers(0, 6))
def test_contexts_chain_token_by_token(tokens: list[int], cut: int) -> None:
    start = prompt_hash(b"\x05" * 32, [1, 2])
    assert start == keccak(b"verdraft/context/1" + b"\x05" * 32 + bytes([0, 0, 0, 1, 0, 0, 0, 2]))
    halfway = extend_context(start, tokens[:cut])
    assert extend_context(halfway, tokens[cut:]) == extend_context(start, tokens)
    assert next_context(start, 7) == keccak(start + bytes([0, 0, 0, 7]))


@pytest.mark.parametrize(
    "kept",
    [
        (),
        ((1, MASS_TOTAL - 1),),
        ((1, MASS_TOTAL), (2, 0)),
        ((2, 1), (1, MASS_TOTAL - 1)),
        ((1, 1), (1, MASS_TOTAL - 1)),
        ((-1, MASS_TOTAL),),
        ((NO_TOKEN, MASS_TOTAL),),
        ((1, MASS_TOTAL + 1), (2, -1)),
        (*((token, 1) for token in range(64)), (64, MASS_TOTAL - 64)),
    ],
)
def test_kept_lists_that_are_no_distribution_are_refused(kept: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(RecordError):
        kept_hash(kept)


def test_list_hashes_bind_every_entry() -> None:
    base = ((1, 5), (9, MASS_TOTAL - 5))
    assert kept_hash(base) == keccak(
        b"verdraft/kept/1" + b"".join(t.to_bytes(4, "big") + m.to_bytes(8, "big") for t, m in base)
    )
    assert kept_hash(base) != kept_hash(((1, 6), (9, MASS_TOTAL - 6)))
    assert top_hash((1, 2)) != top_hash((2, 1))
    for top in ((), (1, 1), tuple(range(9))):
        with pytest.raises(RecordError):
            top_hash(top)


def test_salts_and_stop_strings_are_checked() -> None:
    assert salted_fingerprint(bytes(32), b"\x01" * 32) != salted_fingerprint(
        b"\x01" * 32, bytes(32)
    )
    for bad in (b"", bytes(31)):
        with pytest.raises(RecordError):
            salted_fingerprint(bad, bytes(32))
        with pytest.raises(RecordError):
            prompt_hash(bad, [1])
    assert stop_string_hash("λ") == keccak(b"verdraft/stop-string/1" + "λ".encode())
    with pytest.raises(RecordError):
        stop_string_hash("")


@pytest.mark.parametrize(
    "change",
    [
        {"architecture": ""},
        {"architecture": "x" * 65},
        {"weights_root": bytes(31)},
        {"vocab_size": 0},
        {"eos_ids": (100,)},
        {"eos_ids": (0,) * 65},
        {"context_length": 0},
    ],
)
def test_manifests_are_checked(change: dict[str, Any]) -> None:
    good = Manifest("Llama", Tier.EXACT, bytes(32), bytes(32), 100, (2,), 4096)
    with pytest.raises(RecordError):
        replace(good, **change)
