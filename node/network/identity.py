"""Peer ids, operator addresses and endpoints: three names of one secp256k1 key. Pure functions.

A libp2p peer id of a secp256k1 key holds the whole public key (an identity multihash of its
protobuf), so the Ethereum address follows from the peer id alone and Noise, which proves the peer
id, proves the account that signs the peer's records.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

import base58
from coincurve import PrivateKey

from settlement.signing import address_of

# Identity multihash (code 0, 37 bytes) of the protobuf {1: key type 2 = secp256k1, 2: 33 bytes}.
_PREFIX = b"\x00\x25\x08\x02\x12\x21"
_MAX_ENDPOINT = 160
_DNS_NAME = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?:\.(?!-)[A-Za-z0-9-]{1,63})*")


def peer_id_of(public_key: bytes) -> str:
    """Base58 peer id of a 33-byte compressed secp256k1 public key."""
    if len(public_key) != 33:
        raise ValueError(f"a compressed public key is 33 bytes, got {len(public_key)}")
    return base58.b58encode(_PREFIX + public_key).decode()


def peer_id_of_key(private_key: bytes) -> str:
    """Base58 peer id that `private_key` (32 bytes) proves."""
    return peer_id_of(PrivateKey(private_key).public_key.format())


def address_of_peer_id(peer_id: str | bytes) -> bytes:
    """The 20-byte operator address behind a peer id, base58 or raw.

    Raises:
        ValueError: not the peer id of a secp256k1 key (hashed and ed25519 ids have no address).
    """
    raw = base58.b58decode(peer_id) if isinstance(peer_id, str) else peer_id
    if len(raw) != len(_PREFIX) + 33 or not raw.startswith(_PREFIX):
        raise ValueError(f"not the peer id of a secp256k1 key: {peer_id!r:.80}")
    return address_of(raw[len(_PREFIX) :])


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to dial, and whom to find there. `peer_id` is empty in a listen address."""

    protocol: str
    host: str
    port: int
    peer_id: str = ""

    def __str__(self) -> str:
        tail = f"/p2p/{self.peer_id}" if self.peer_id else ""
        return f"/{self.protocol}/{self.host}/tcp/{self.port}{tail}"


def parse_endpoint(text: str) -> Endpoint:
    """Reads `/ip4|ip6|dns4|dns6|dns/HOST/tcp/PORT[/p2p/PEERID]`.

    Raises:
        ValueError: any other form; the address is shown.
    """
    parts = text.split("/")
    if len(text) > _MAX_ENDPOINT or len(parts) not in (5, 7) or parts[0] or parts[3] != "tcp":
        raise ValueError(f"expected /ip4/HOST/tcp/PORT/p2p/PEERID, got {text!r:.160}")
    protocol, host, port = parts[1], parts[2], parts[4]
    if protocol in ("ip4", "ip6"):
        parsed = ipaddress.ip_address(host)
        if (parsed.version == 4) != (protocol == "ip4"):
            raise ValueError(f"{host} is not an {protocol} address")
        host = str(parsed)
    elif protocol not in ("dns", "dns4", "dns6") or not _DNS_NAME.fullmatch(host):
        raise ValueError(f"cannot dial /{protocol}/{host}; use ip4, ip6 or dns with TCP")
    if not (port.isascii() and port.isdecimal() and 0 <= int(port) <= 65535):
        raise ValueError(f"a TCP port is 0 to 65535, got {port!r}")
    peer_id = ""
    if len(parts) == 7:
        if parts[5] != "p2p":
            raise ValueError(f"expected /p2p/PEERID at the end, got {text!r:.160}")
        peer_id = parts[6]
        address_of_peer_id(peer_id)
    return Endpoint(protocol, host, int(port), peer_id)


def address_of_endpoint(text: str) -> bytes:
    """The operator address that an endpoint with a peer id names.

    Raises:
        ValueError: no endpoint, or one without a secp256k1 peer id.
    """
    endpoint = parse_endpoint(text)
    if not endpoint.peer_id:
        raise ValueError(f"the endpoint must end in /p2p/PEERID, got {text!r:.160}")
    return address_of_peer_id(endpoint.peer_id)
