"""Moves announcements between nodes: signed push and pull over the transport's own requests.

Every interval a node asks a few peers, drawn at random, with a digest of what it holds; the answer
brings what it lacks and names what the peer lacks, which goes out at once. News is also pushed on
to a few peers as soon as it arrives, so that a change crosses a small network in well under a
second and the periodic exchange only repairs losses: as long as it finds none, its pauses grow.
One reachable address is enough to begin with, and after the first exchange nobody depends on it:
peers are drawn from the table.

Pull by digest rather than a flood: what a peer can make this node send is bounded by its own
requests, and a node that was away gets everything it missed in one exchange.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import trio

from node.network import exchange
from node.network.discovery import (
    MAX_LIFETIME_MS,
    Entry,
    Intake,
    PeerTable,
    sign_announcement,
)
from node.network.errors import MalformedFrame, NetworkError, Refused
from node.network.framing import Status
from node.network.messages import (
    MAX_DIGEST,
    MAX_NEWS,
    Announcement,
    GossipDigest,
    GossipNews,
    Kind,
    Offer,
    Role,
    SignedAnnouncement,
)
from node.network.transport import Transport


@dataclass(frozen=True)
class GossipPace:
    """Times in seconds. `lifetime` must outlast a few failed refreshes.

    interval: between exchanges that find what pushes have missed, or while there are few peers;
    quiet: the most between others.
    per_peer_rate: exchanges per second that one peer may ask for, with as many more in a burst.
    """

    interval: float = 1.0
    quiet: float = 8.0
    fanout: int = 3
    lifetime: float = 60.0
    refresh: float = 15.0
    deadline: float = 3.0
    settle: float = 0.02
    per_peer_rate: float = 20.0

    def __post_init__(self) -> None:
        if not 0 < self.interval <= self.quiet:
            raise ValueError(
                f"exchanges at least every {self.interval} s, at most every {self.quiet} s: the "
                "first is above 0, and no more than the second"
            )
        if not 0 < self.refresh <= self.lifetime / 2:
            raise ValueError(
                f"refresh every {self.refresh} s would let an announcement of {self.lifetime} s "
                "expire between two; use at most half of the lifetime"
            )
        if self.lifetime * 1000 > MAX_LIFETIME_MS:
            raise ValueError(f"a lifetime of {self.lifetime} s is over the protocol's bound")


class Discovery:
    """This node's view of the others, kept current while `run` runs.

    Args:
        private_key: the operator's key, which signs this node's announcement.
        bootstrap: (operator, endpoints) of nodes to begin with.
        now_ms: wall clock in unix milliseconds.
        rng: draws peers and jitter.
        capacity: operators held at once; vouched: as in `PeerTable`.
    """

    def __init__(
        self,
        transport: Transport,
        private_key: bytes,
        *,
        bootstrap: Sequence[tuple[bytes, Sequence[str]]] = (),
        deployment: bytes = bytes(32),
        now_ms: Callable[[], int],
        rng: random.Random | None = None,
        pace: GossipPace | None = None,
        capacity: int = 1024,
        vouched: Callable[[bytes], bool] = lambda operator: False,
    ) -> None:
        self.table = PeerTable(deployment, vouched, capacity=min(capacity, MAX_DIGEST))
        self._transport = transport
        self._key = private_key
        self._deployment = deployment
        self._now_ms = now_ms
        self._rng = rng or random.SystemRandom()
        self._pace = pace or GossipPace()
        self._bootstrap = tuple(peer for peer, _ in bootstrap if peer != transport.address)
        for peer, endpoints in bootstrap:
            transport.learn(peer, endpoints)
        self._offers: tuple[Offer, ...] = ()
        self._aborts = 0
        self._announced = False
        self._unsaid = False
        self._missed = trio.Event()  # exchanges found what pushes had missed, or failed
        self._missed.set()
        self._fresh: dict[bytes, SignedAnnouncement] = {}
        self._stir = trio.Event()
        self._changed = trio.Event()
        self._budgets: dict[bytes, tuple[float, float]] = {}
        exchange.serve(transport, Kind.GOSSIP, self._answer)

    # What roles ask.

    def peers(self, role: Role | None = None, model_id: bytes | None = None) -> tuple[Entry, ...]:
        """Who is there now, this node excluded."""
        entries = self.table.entries(self._now_ms(), role, model_id)
        return tuple(e for e in entries if e.operator != self._transport.address)

    def round_trip(self, operator: bytes) -> float | None:
        """Measured seconds to `operator`; None while unknown."""
        return self._transport.round_trip(operator)

    async def wait_for(
        self, role: Role, count: int = 1, model_id: bytes | None = None
    ) -> tuple[Entry, ...]:
        """Returns when at least `count` peers offer `role`; set a timeout around it."""
        while len(found := self.peers(role, model_id)) < count:
            changed = self._changed
            # Entries also vanish by expiry, which wakes nobody.
            with trio.move_on_after(self._pace.interval):
                await changed.wait()
        return found

    # What this node says of itself.

    def announce(self, offers: Sequence[Offer], aborts: int = 0) -> None:
        """Makes `offers` known; called again whenever they change."""
        self._offers = tuple(offers)
        self._aborts = aborts
        self._announced = True
        self._publish(left=False)

    async def leave(self) -> None:
        """Says goodbye, to as many peers as answer within the deadline."""
        if not self._announced:
            return
        self._announced = False
        self._publish(left=True)
        self._fresh.clear()
        own = self.table.news_for((), self._now_ms())
        ours = tuple(s for s in own if self._is_own(s))
        async with trio.open_nursery() as nursery:
            for peer in self._draw(3 * self._pace.fanout):
                nursery.start_soon(self._send, peer, GossipDigest((), ours))

    def _is_own(self, signed: SignedAnnouncement) -> bool:
        # The operator is the first field after the tag.
        return signed.body[1:21] == self._transport.address

    def _publish(self, *, left: bool) -> None:
        address = self._transport.address
        now = self._now_ms()
        # Above whatever an earlier run of this node, or its clock, has signed.
        sequence = max(now, (self.table.sequence_of(address) or 0) + 1)
        announcement = Announcement(
            operator=address,
            sequence=sequence,
            expires_ms=now + round(self._pace.lifetime * 1000),
            left=left,
            endpoints=() if left else tuple(self._transport.endpoints()),
            offers=() if left else self._offers,
            aborts=self._aborts,
        )
        signed = sign_announcement(announcement, self._key, self._deployment)
        # Told to say more than the table's allowance: the next round says it.
        self._unsaid = self._take(signed, own=True) is Intake.RATE

    # Exchange.

    async def run(self) -> None:
        """Gossips until cancelled. Call `leave` before cancelling for an orderly end."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._refresh)
            nursery.start_soon(self._push)
            pause = self._pace.interval
            while True:
                if self._unsaid:
                    self._publish(left=not self._announced)
                drawn = self._draw(self._pace.fanout)
                lonely = len(drawn) < self._pace.fanout
                again = self._missed.is_set() or self._unsaid or lonely
                pause = self._pace.interval if again else min(2 * pause, self._pace.quiet)
                self._missed = trio.Event()
                digest = GossipDigest(self.table.held())
                for peer in drawn:
                    nursery.start_soon(self._send, peer, digest)
                jitter = 0.5 + self._rng.random()
                await trio.sleep(self._pace.interval * jitter)
                with trio.move_on_after((pause - self._pace.interval) * jitter):
                    await self._missed.wait()

    async def _refresh(self) -> None:
        while True:
            await trio.sleep(self._pace.refresh * (0.75 + 0.5 * self._rng.random()))
            if self._announced:
                self._publish(left=False)

    async def _push(self) -> None:
        """Passes news on as it comes, a burst of it in one message per peer."""
        async with trio.open_nursery() as nursery:
            while True:
                await self._stir.wait()
                self._stir = trio.Event()
                await trio.sleep(self._pace.settle)
                news = tuple(self._fresh.values())
                self._fresh.clear()
                for start in range(0, len(news), MAX_NEWS):
                    digest = GossipDigest((), news[start : start + MAX_NEWS])
                    for peer in self._draw(self._pace.fanout):
                        nursery.start_soon(self._send, peer, digest)

    def _draw(self, count: int) -> list[bytes]:
        """Peers to talk to: from the table, and a bootstrap node while it is hardly filled."""
        known = [e.operator for e in self.peers() if e.announcement.endpoints]
        linked = [p for p in self._transport.connected() if p not in known]
        pool = known + linked
        drawn = self._rng.sample(pool, min(count, len(pool)))
        strangers = [p for p in self._bootstrap if p not in pool]
        if strangers and (len(known) < count or self._rng.random() < 0.1):
            drawn.append(self._rng.choice(strangers))
        return drawn

    async def _send(self, peer: bytes, digest: GossipDigest) -> None:
        try:
            reply = await exchange.ask(
                self._transport, peer, Kind.GOSSIP, digest, deadline=self._pace.deadline
            )
            assert isinstance(reply, GossipNews)
            for signed in reply.news:
                intake = self._take(signed)
                if intake.offence:
                    self._transport.disconnect(peer, "it passes on what nobody signed")
                    return
                if intake.news:
                    self._missed.set()
            wanted = set(reply.wanted) if digest.held else set()
            if wanted:
                ours = self.table.news_for((), self._now_ms())
                news = tuple(s for s in ours if s.body[1:21] in wanted)[:MAX_NEWS]
                if news:
                    self._missed.set()
                    await exchange.ask(
                        self._transport,
                        peer,
                        Kind.GOSSIP,
                        GossipDigest((), news),
                        deadline=self._pace.deadline,
                    )
        except NetworkError:
            self._missed.set()
            return  # Counted where it happened; the next round asks somebody else.

    async def _answer(self, peer: bytes, digest: GossipDigest) -> GossipNews:
        if not self._allow(peer):
            raise Refused(Status.RATE, "too much gossip", 1.0)
        for signed in digest.news:
            if self._take(signed).offence:
                raise MalformedFrame("an announcement that its operator did not sign")
        if not digest.held and digest.news:
            return GossipNews(())  # A push wants no answer.
        news = self.table.news_for(digest.held, self._now_ms())[:MAX_NEWS]
        return GossipNews(news, self.table.wanted_from(digest.held)[:MAX_NEWS])

    def _allow(self, peer: bytes) -> bool:
        rate = self._pace.per_peer_rate
        now = trio.current_time()
        level, since = self._budgets.get(peer, (rate, now))
        level = min(rate, level + (now - since) * rate)
        if len(self._budgets) > 4 * MAX_DIGEST:
            self._budgets.clear()
        self._budgets[peer] = (level - 1 if level >= 1 else level, now)
        return level >= 1

    def _take(self, signed: SignedAnnouncement, *, own: bool = False) -> Intake:
        if not own and self._is_own(signed):
            return self._meet_myself(signed)
        intake = self.table.offer(signed, self._now_ms())
        if intake.news:
            self._fresh[signed.body[1:21]] = signed
            self._stir.set()
            self._changed.set()
            self._changed = trio.Event()
            entry = self.table.find(signed.body[1:21], self._now_ms())
            if entry is not None and not own:
                self._transport.learn(entry.operator, entry.announcement.endpoints)
        return intake

    def _meet_myself(self, signed: SignedAnnouncement) -> Intake:
        """Something this operator signed came back: an echo, or a run of it before a restart.

        An older run whose clock was ahead would outlast everything said now, so say it again,
        above that sequence.
        """
        intake = self.table.offer(signed, self._now_ms())
        if intake.news and self._announced:
            self._publish(left=False)
        return intake
