"""One key, three names: peer id, operator address, endpoint."""

from __future__ import annotations

import contextlib

import pytest
from eth_account import Account
from hypothesis import given
from hypothesis import strategies as st
from libp2p.crypto.ed25519 import create_new_key_pair as ed25519_pair
from libp2p.crypto.secp256k1 import create_new_key_pair as secp256k1_pair
from libp2p.peer.id import ID

from node.network import identity

KEY = bytes(range(1, 33))


def test_the_peer_id_is_libp2ps_and_the_address_is_ethereums() -> None:
    pair = secp256k1_pair(KEY)
    peer_id = identity.peer_id_of_key(KEY)
    assert peer_id == ID.from_pubkey(pair.public_key).to_base58()
    assert identity.address_of_peer_id(peer_id) == bytes.fromhex(Account.from_key(KEY).address[2:])


def test_ids_of_other_keys_have_no_address() -> None:
    other = ID.from_pubkey(ed25519_pair(bytes(32)).public_key)
    with pytest.raises(ValueError, match="secp256k1"):
        identity.address_of_peer_id(other.to_base58())
    with pytest.raises(ValueError, match="secp256k1"):
        identity.address_of_peer_id(other.to_bytes())


def test_a_point_off_the_curve_is_refused() -> None:
    raw = b"\x00\x25\x08\x02\x12\x21" + b"\x02" + b"\xff" * 32
    with pytest.raises(ValueError, match=r".*"):
        identity.address_of_peer_id(raw)


PEER = identity.peer_id_of_key(KEY)


@pytest.mark.parametrize(
    "text",
    [
        f"/ip4/127.0.0.1/tcp/4001/p2p/{PEER}",
        f"/ip6/::1/tcp/4001/p2p/{PEER}",
        f"/dns4/node-1.example.org/tcp/65535/p2p/{PEER}",
        "/ip4/0.0.0.0/tcp/0",
    ],
)
def test_endpoints_round_trip(text: str) -> None:
    assert str(identity.parse_endpoint(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "memory:0x00",
        "/ip4/127.0.0.1/udp/4001",
        "/ip4/::1/tcp/4001",
        "/ip6/127.0.0.1/tcp/4001",
        "/ip4/256.0.0.1/tcp/4001",
        "/ip4/127.0.0.1/tcp/65536",
        "/ip4/127.0.0.1/tcp/-1",
        "/ip4/127.0.0.1/tcp/٤",
        "/dns4/-bad-/tcp/1",
        "/dns4/a_b/tcp/1",
        "/ip4/127.0.0.1/tcp/4001/p2p/QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N",
        f"/ip4/127.0.0.1/tcp/4001/p2p/{PEER}/p2p-circuit",
        f"/dns4/{'a' * 200}/tcp/1/p2p/{PEER}",
    ],
)
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        identity.parse_endpoint(text)


@given(st.text(max_size=200))
def test_nothing_but_value_errors(text: str) -> None:
    with contextlib.suppress(ValueError):
        identity.parse_endpoint(text)


def test_an_endpoint_without_a_peer_names_nobody() -> None:
    with pytest.raises(ValueError, match="p2p"):
        identity.address_of_endpoint("/ip4/127.0.0.1/tcp/4001")
