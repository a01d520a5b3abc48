"""Every record hashes to the same 32 bytes in Python and in Solidity."""

from __future__ import annotations

import re
from random import Random

import pytest
from random_records import (
    kept_of,
    manifest_of,
    pack_ids,
    pack_kept,
    record_of,
    value_of,
)

from settlement.chain.paths import CONTRACTS
from settlement.records import (
    LEAF_RECORDS,
    SIGNED_RECORDS,
    Domain,
    Lane,
    Order,
    RoundRecord,
    Voucher,
    kept_hash,
    next_context,
    prompt_hash,
    salted_fingerprint,
    stop_string_hash,
    top_hash,
)
from settlement.schema import Record

RUNS = [300, pytest.param(10_000, marks=pytest.mark.slow)]
SOURCE = (CONTRACTS / "libraries" / "Records.sol").read_text()


def _constant_name(kind: type[Record]) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).upper() + "_TYPEHASH"


@pytest.mark.parametrize("kind", [*SIGNED_RECORDS, *LEAF_RECORDS], ids=lambda kind: kind.__name__)
def test_the_type_strings_in_the_source_are_those_of_the_dataclasses(kind: type[Record]) -> None:
    match = re.search(rf"{_constant_name(kind)}\s*=\s*keccak256\(([^)]*\)[\s\"]*)\)", SOURCE)
    assert match is not None, f"{_constant_name(kind)} is missing from Records.sol"
    assert "".join(re.findall(r'"([^"]*)"', match[1])) == kind.type_string()


@pytest.mark.parametrize(
    "kind", [Lane, *SIGNED_RECORDS, *LEAF_RECORDS], ids=lambda kind: kind.__name__
)
def test_the_structs_in_the_source_are_those_of_the_dataclasses(kind: type[Record]) -> None:
    match = re.search(rf"struct {kind.__name__} \{{(.*?)\}}", SOURCE, re.DOTALL)
    assert match is not None, f"struct {kind.__name__} is missing from Records.sol"
    fields = re.findall(r"(\S+) (\w+);", match[1])
    assert fields == [(spec.type_name, spec.solidity_name) for spec in kind.specs()]


def _static_words(record: Record) -> bytes:
    """Static fields word by word: what calldata holds of a static struct."""
    return b"".join(spec.abi_words(getattr(record, spec.name)) for spec in record.specs())


@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize("kind", SIGNED_RECORDS, ids=lambda kind: kind.__name__)
def test_struct_hashes_agree(harness, kind: type[Record], runs: int) -> None:
    h, rng = harness("RecordsHarness"), Random(f"{kind.__name__}/{runs}")
    function = f"hash{kind.__name__}"
    records = [record_of(rng, kind) for _ in range(runs)]
    if kind is Order:
        calls = [h.calldata(function, record.to_abi()) for record in records]
    else:
        calls = [h.selector(function) + _static_words(record) for record in records]
    for record, answer in zip(records, h.batch(calls), strict=True):
        assert answer.word == record.struct_hash, record


@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize("kind", LEAF_RECORDS, ids=lambda kind: kind.__name__)
def test_leaf_hashes_agree(harness, kind: type[Record], runs: int) -> None:
    h, rng = harness("RecordsHarness"), Random(f"{kind.__name__}/{runs}")
    selector = h.selector(f"leaf{kind.__name__}")
    records = [record_of(rng, kind) for _ in range(runs)]
    answers = h.batch([selector + _static_words(record) for record in records])
    for record, answer in zip(records, answers, strict=True):
        assert answer.word == record.leaf_hash, record


@pytest.mark.parametrize("runs", RUNS)
def test_lanes_and_their_ids_agree(harness, runs: int) -> None:
    h, rng = harness("RecordsHarness"), Random(runs)
    lanes = [record_of(rng, Lane) for _ in range(runs)]
    answers = h.batch([h.selector("laneId") + _static_words(lane) for lane in lanes])
    for lane, answer in zip(lanes, answers, strict=True):
        assert answer.word == lane.id, lane
    for _ in range(min(runs, 300) // 10):
        order = record_of(rng, Order)
        ((*parties, claim),) = h.call("laneOf", order.to_abi())
        assert (*(bytes.fromhex(party[2:]) for party in parties), claim) == order.lane.to_abi()


@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize("kind", [RoundRecord, Voucher], ids=lambda kind: kind.__name__)
def test_packed_sums_agree(harness, kind: type[Record], runs: int) -> None:
    h, rng = harness("RecordsHarness"), Random(f"{kind.__name__}/sums/{runs}")
    records = [record_of(rng, kind) for _ in range(runs)]
    selector = h.selector(f"sumsOf{kind.__name__}")
    answers = h.batch([selector + _static_words(record) for record in records])
    for record, answer in zip(records, answers, strict=True):
        assert answer.data == record.sums.packed, record


@pytest.mark.parametrize("runs", RUNS)
def test_model_ids_agree(harness, runs: int) -> None:
    h, rng = harness("RecordsHarness"), Random(runs)
    manifests = [manifest_of(rng) for _ in range(runs)]
    calls = [
        h.calldata(
            "modelId",
            (
                m.architecture,
                int(m.tier),
                m.weights_root,
                m.tokenizer_hash,
                m.vocab_size,
                list(m.eos_ids),
                m.context_length,
            ),
        )
        for m in manifests
    ]
    for manifest, answer in zip(manifests, h.batch(calls), strict=True):
        assert answer.word == manifest.model_id, manifest


@pytest.mark.parametrize("runs", RUNS)
def test_domains_and_digests_agree(harness, runs: int) -> None:
    h, rng = harness("RecordsHarness"), Random(runs)
    escrows = [rng.randbytes(20) for _ in range(runs)]
    answers = h.batch([h.calldata("domainSeparator", "0x" + e.hex()) for e in escrows])
    for escrow, answer in zip(escrows, answers, strict=True):
        assert answer.word == Domain(1, escrow).separator  # the in-process chain has id 1
    vouchers = [record_of(rng, Voucher) for _ in range(runs)]
    domain = Domain(31337, escrows[0])
    calls = [h.calldata("digest", domain.separator, v.struct_hash) for v in vouchers]
    for voucher, answer in zip(vouchers, h.batch(calls), strict=True):
        assert answer.word == domain.digest(voucher)


@pytest.mark.parametrize("runs", RUNS)
def test_hashes_of_contexts_and_lists_agree(harness, runs: int) -> None:
    h, rng = harness("RecordsHarness"), Random(runs)
    calls, expected = [], []
    for _ in range(runs):
        salt, word, token = rng.randbytes(32), rng.randbytes(32), value_of(rng, "uint32")
        ids = [value_of(rng, "uint32") for _ in range(rng.randrange(20))]
        top = tuple(rng.sample(range(1 << 17), rng.randint(1, 8)))
        kept = kept_of(rng)
        text = "".join(rng.choice("</s>\nπ字") for _ in range(rng.randint(1, 40)))
        pairs = [
            (h.calldata("nextContext", word, token), next_context(word, token)),
            (h.calldata("promptHash", salt, pack_ids(ids)), prompt_hash(salt, ids)),
            (h.calldata("keptHash", pack_kept(kept)), kept_hash(kept)),
            (h.calldata("topHash", pack_ids(top)), top_hash(top)),
            (h.calldata("saltedFingerprint", salt, word), salted_fingerprint(salt, word)),
            (h.calldata("stopStringHash", text), stop_string_hash(text)),
        ]
        for call, value in pairs:
            calls.append(call)
            expected.append(value)
    for value, answer in zip(expected, h.batch(calls), strict=True):
        assert answer.word == value


def test_a_field_wider_than_its_type_is_refused(harness) -> None:
    """Dirty upper bits never reach a hash: the ABI decoder reverts."""
    h, rng = harness("RecordsHarness"), Random(1)
    voucher = record_of(rng, Voucher)
    words = bytearray(_static_words(voucher))
    words[32 + 27] = 1  # the byte above epoch, a uint32
    (answer,) = h.batch([h.selector("hashVoucher") + bytes(words)])
    assert not answer.ok
