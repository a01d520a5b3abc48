"""What the contracts make of a proof: a stake, a filing, a slash. Needs anvil and solc.

The stage plays under the deployed escrow's domain and the deployed token, so that what honest
journals prove is what FaultCourt is shown.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import arena
from stage import Played, Row, Scene

sys.path.insert(0, str(Path(__file__).parent.parent / "contracts"))

from counter_contract import KEYS
from deployment import OWNER, TOKEN, deploy_devnet, make_sender
from leaving import Leaving, Left

from settlement.chain.anvil import Anvil
from settlement.chain.contracts import Contracts, Role
from settlement.hashing import keccak256
from settlement.signing import address_of_key

STAKE = 10**4 * TOKEN
__all__ = [
    "KEYS",
    "OWNER",
    "TOKEN",
    "Courtroom",
    "Ruling",
    "deploy_devnet",
    "make_sender",
    "opened",
]
_SALT = b"\x05" * 32
_VESTED = keccak256(b"Vested(address,uint256,uint64)")


@dataclass(frozen=True)
class Ruling:
    """Stake units. `honest` is what any other party's stake lost."""

    slashed: int
    recovered: int
    honest: int
    left: Left


class Courtroom:
    """A chain with every contract, and the stage's domain and token set to theirs."""

    def __init__(self, anvil: Anvil, folder: Path) -> None:
        self.anvil, self.folder = anvil, folder
        self.contracts: Contracts = deploy_devnet(anvil, folder)

    @contextmanager
    def sits(self) -> Iterator[None]:
        """Scenes played inside are under this deployment."""
        before = arena.DOMAIN, arena.TOKEN
        arena.DOMAIN, arena.TOKEN = self.contracts.domain, self.contracts.token.address
        try:
            yield
        finally:
            arena.DOMAIN, arena.TOKEN = before

    def ruled(self, row: Row, scene: Scene, played: Played) -> Row:
        """The row with what the court has taken, given and spared."""
        ruling = self.rule(scene, played)
        return replace(
            row,
            outcome="slashed" if ruling.slashed else row.outcome,
            slashed=ruling.slashed,
            victim_recovered=ruling.recovered,
            honest_slashed=row.honest_slashed + (ruling.honest > 0),
            all_withdrew=ruling.left.all_withdrew,
            withdrawn=ruling.left.honest,
        )

    def leave(self, folder: Path, keys: Iterable[bytes], crooked: Iterable[bytes]) -> Left:
        """Everybody in the scene leaves; `crooked`: the addresses of those who are not honest."""
        keys = list(keys)
        honest = {address_of_key(key) for key in keys} - set(crooked)
        return Leaving(self.contracts, self.anvil, folder / "leaving", keys)(honest)

    def rule(self, scene: Scene, played: Played) -> Ruling:
        """Both operators stake, and a stranger proves everything that was found, once each."""
        with self.anvil.rolled_back():
            return self._rule(scene, played)

    def _rule(self, scene: Scene, played: Played) -> Ruling:
        chain, folder = self.contracts, self.folder / scene.name.replace(" ", "-")
        folder.mkdir(exist_ok=True)
        seats = {
            name: (Role.DRAFTER if "drafter" in name else Role.VERIFIER, node)
            for name, node in played.nodes.items()
            if "drafter" in name or "verifier" in name
        }
        rich = make_sender(chain.rpc, KEYS[0], folder / "rich.sqlite", chain)
        for name, (role, node) in seats.items():
            self.anvil.rpc("anvil_setBalance", "0x" + node.address.hex(), hex(10**20))
            rich.send(f"stake:{name}", chain.token.transfer(node.address, STAKE))
            own = make_sender(chain.rpc, node.key, folder / f"{name}.sqlite", chain)
            own.send("approve", chain.token.approve(chain.vault.address, STAKE))
            own.send("stake", chain.vault.stake(node.address, node.address, role, STAKE))
        challenger = make_sender(chain.rpc, KEYS[1], folder / "challenger.sqlite", chain)
        challenger.send("approve", chain.token.approve(chain.court.address, 10**4 * TOKEN))
        since = chain.rpc.head().number
        for number, fault in enumerate(played.proofs):
            question = chain.rule_of(fault).question(fault, chain.domain.separator)
            commitment = chain.court.commitment(question, challenger.address, _SALT)
            challenger.send(f"file:{number}", chain.court.file(commitment))
            self.anvil.rpc("anvil_mine", hex(2))
            challenger.send(f"prove:{number}", chain.court.prove(fault, _SALT))
        lost = {
            name: STAKE - chain.vault.slashable(node.address, role)
            for name, (role, node) in seats.items()
        }
        guilty = sum(lost.pop(seat, 0) for seat in scene.crooked)
        given = self.vested(since)
        given.pop(challenger.address, None)
        keys = [node.key for node in played.nodes.values()]
        crooked = [played.nodes[seat].address for seat in scene.crooked]
        left = self.leave(folder, keys, crooked)
        return Ruling(guilty, sum(given.values()), sum(lost.values()), left)

    def vested(self, since: int) -> dict[bytes, int]:
        """What slashes since that block gave, by whom it was given to."""
        logs: list[dict[str, Any]] = self.anvil.rpc(
            "eth_getLogs",
            {
                "address": "0x" + self.contracts.vault.address.hex(),
                "fromBlock": hex(since),
                "topics": ["0x" + _VESTED.hex()],
            },
        )
        given: dict[bytes, int] = {}
        for log in logs:
            to = bytes.fromhex(log["topics"][1][-40:])
            given[to] = given.get(to, 0) + int(log["data"][2:66], 16)
        return given


@contextmanager
def opened(folder: Path) -> Iterator[Courtroom]:
    """A fresh chain with all contracts, for as long as the block lasts."""
    with Anvil() as anvil:
        room = Courtroom(anvil, folder)
        with room.sits():
            yield room
