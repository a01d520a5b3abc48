"""Who may have a place among a payee's sessions. Pure.

Places are few, for each holds a model's memory, and a reserve that is only shown costs nobody
anything. So no client has more than its share, and a session that only waits for its own parties
gives way: to its client's next one, or, when all places are taken, to a client that has fewer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from node.config import LimitConfig
from node.network.errors import Refused
from node.roles.refusals import No

AGAIN_SECONDS: Final = 2.0
PACE_SECONDS: Final = 2.0  # a token, that a session's other parties may take and not lose its place


@dataclass(frozen=True)
class Place:
    """A session that runs. `waiting`: seconds for which others have held it up (`held_up`); 0 while
    this node itself is at work on it."""

    session_id: bytes
    client: bytes
    waiting: float


def held_up(now: float, before: float, tokens: int) -> float:
    """Seconds of waiting that count: the wait that goes on, and what the earlier ones took beyond
    the pace for so many tokens. Who says a little now and then holds a place no longer by it."""
    return now + max(0.0, before - PACE_SECONDS * tokens)


def make_room(places: Sequence[Place], client: bytes, limits: LimitConfig) -> Place | None:
    """The place that must be given up before `client` can have one more; None when there is room.

    Raises Refused: there is none, and none that may be taken away.
    """
    held = Counter(place.client for place in places)
    own = held[client]
    idle = [place for place in places if place.waiting > limits.idle_seconds]
    if own >= limits.max_sessions_per_client:
        idle = [place for place in idle if place.client == client]
        said = f"{own} sessions of yours run here, at most {limits.max_sessions_per_client}"
    elif len(places) >= limits.max_sessions:
        # INVARIANT: nobody comes to hold more by this than the one who loses held. So nobody can
        # turn out its own sessions to keep them fresh, and many places need many funded clients.
        idle = [place for place in idle if held[place.client] > own]
        said = f"{len(places)} sessions run here already"
    else:
        return None
    if not idle:
        raise Refused(No.RESERVE, said, AGAIN_SECONDS)
    return max(idle, key=lambda place: (held[place.client], place.waiting))
