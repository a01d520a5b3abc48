"""Whose link makes way when there is no room for another. Pure.

Keys are free and so are idle connections, so neither a key nor a link that is merely used says that
somebody is worth its place. What does is a session, a lane or a stake, and then the host: links of
one host come from one hand most often.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from node.network.transport import Limits

ONE_SITE: Final = 64  # bits of an IPv6 address that one subscriber is given at least


class Standing(IntEnum):
    """What a peer is to this node."""

    STRANGER = 0
    KNOWN = 1  # has stake, or a lane with this node
    PARTNER = 2  # has a session that runs here


@dataclass(frozen=True)
class Held:
    """An established link. `age` and `idle` in seconds; a link is idle 0 while a request or channel
    is open on it."""

    peer: bytes
    host: str
    standing: Standing
    age: float
    idle: float


class NoRoom(Exception):
    """Nobody makes way for the newcomer."""


def make_way(links: Sequence[Held], host: str, standing: Standing, limits: Limits) -> Held | None:
    """The link that must end before a peer of that host and standing can have one; None when there
    is room. Raises NoRoom.

    An empty host is never counted. Strangers make way for who is none, and for each other when
    they have had `stranger_seconds`; a link that nobody has used for `evict_after` does for all of
    no lower standing.
    """
    crowd = Counter(link.host for link in links)
    if host and crowd[host] >= limits.links_per_host:
        candidates = [link for link in links if link.host == host]
    elif len(links) >= limits.max_links:
        candidates = list(links)
    else:
        return None

    def yields(link: Held) -> bool:
        had_its_time = standing > Standing.STRANGER or link.age >= limits.stranger_seconds
        if link.standing == Standing.STRANGER and had_its_time:
            return True
        return link.standing <= standing and link.idle >= limits.evict_after

    going = [link for link in candidates if yields(link)]
    if not going:
        raise NoRoom(f"{len(links)} links, {crowd[host]} with this host")
    crowd[""] = 0
    return min(going, key=lambda link: (link.standing, -crowd[link.host], -link.idle, -link.age))


def site_of(address: str) -> str:
    """What counts as one host of a textual IP address: an IPv4 address, or an IPv6 network of 64
    bits, for who has one has all addresses in it."""
    try:
        ip: IPv4Address | IPv6Address = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(ip, IPv6Address):
        if ip.ipv4_mapped is None:
            return f"{IPv6Address(int(ip) >> ONE_SITE << ONE_SITE)}/{ONE_SITE}"
        ip = ip.ipv4_mapped
    return str(ip)


def is_this_machine(address: str) -> bool:
    """Whether it is a loopback address: many nodes of a devnet are there."""
    try:
        ip: IPv4Address | IPv6Address = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = ip.ipv4_mapped if isinstance(ip, IPv6Address) else None
    return (mapped or ip).is_loopback
