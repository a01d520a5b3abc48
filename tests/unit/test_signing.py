"""Signatures that Python accepts are exactly those that the contracts accept."""

from __future__ import annotations

import pytest
from eth_account import Account
from hypothesis import given
from hypothesis import strategies as st

from settlement.records import Domain, SessionStart
from settlement.signing import (
    BadSignature,
    address_of_key,
    recover,
    require_signer,
    sign,
)

ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
KEY = bytes(range(1, 33))
DIGEST = bytes(range(32))

keys = st.integers(1, ORDER - 1).map(lambda number: number.to_bytes(32, "big"))
digests = st.binary(min_size=32, max_size=32)


@given(keys, digests)
def test_a_signature_recovers_to_its_key_and_equals_ethereums(key: bytes, digest: bytes) -> None:
    signature = sign(digest, key)
    assert recover(digest, signature) == address_of_key(key)
    account = Account.from_key(key)
    assert address_of_key(key).hex() == account.address[2:].lower()
    # RFC 6979 nonces: the same bytes from every correct signer.
    assert signature == bytes(account.unsafe_sign_hash(digest).signature)


@given(keys, digests, digests)
def test_another_digest_has_another_signer(key: bytes, digest: bytes, other: bytes) -> None:
    signature = sign(digest, key)
    try:
        signer = recover(other, signature)
    except BadSignature:
        return
    assert (signer == address_of_key(key)) == (digest == other)


@given(keys, digests)
def test_the_malleable_twin_is_refused(key: bytes, digest: bytes) -> None:
    signature = sign(digest, key)
    high = ORDER - int.from_bytes(signature[32:64], "big")
    twin = signature[:32] + high.to_bytes(32, "big") + bytes([55 - signature[64]])
    with pytest.raises(BadSignature, match="upper half"):
        recover(digest, twin)


@given(st.binary(min_size=65, max_size=65))
def test_hostile_signatures_recover_or_are_bad(raw: bytes) -> None:
    for signature in (raw, raw[:64] + b"\x1b", bytes(32) + raw[32:64] + b"\x1c"):
        try:
            assert len(recover(DIGEST, signature)) == 20
        except BadSignature:
            continue


@pytest.mark.parametrize(
    "signature",
    [
        b"",
        bytes(64),
        bytes(66),
        bytes(65),
        sign(DIGEST, KEY)[:64] + b"\x00",
        sign(DIGEST, KEY)[:64] + b"\x1d",
        b"\xff" * 32 + sign(DIGEST, KEY)[32:],
        bytes(32) + sign(DIGEST, KEY)[32:],
        sign(DIGEST, KEY)[:32] + bytes(32) + b"\x1b",
    ],
)
def test_malformed_signatures_are_refused(signature: bytes) -> None:
    with pytest.raises(BadSignature):
        recover(DIGEST, signature)


def test_digests_have_32_bytes() -> None:
    with pytest.raises(ValueError, match="31"):
        sign(bytes(31), KEY)
    with pytest.raises(ValueError, match="33"):
        recover(bytes(33), sign(DIGEST, KEY))


def test_require_signer_names_the_record_and_both_addresses() -> None:
    signature = sign(DIGEST, KEY)
    require_signer(DIGEST, signature, address_of_key(KEY), "voucher")
    with pytest.raises(BadSignature, match=f"voucher.*{address_of_key(KEY).hex()}.*{'07' * 20}"):
        require_signer(DIGEST, signature, b"\x07" * 20, "voucher")


def test_a_domain_signs_records_for_itself_only() -> None:
    start = SessionStart(bytes(32), bytes(32), 1)
    here, there = Domain(1, bytes(20)), Domain(2, bytes(20))
    signature = here.sign(start, KEY)
    assert here.signer(start, signature) == address_of_key(KEY)
    assert there.signer(start, signature) != address_of_key(KEY)
