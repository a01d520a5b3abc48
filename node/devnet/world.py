"""The devnet's chain and money: anvil, contracts, operators with stakes, lanes with reserves."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from node.devnet.options import TOKEN, DevnetOptions, Operator
from node.inference import catalog
from node.inference.manifest import manifest_of
from node.inference.shipped_draft import RECORD_FILE
from node.keys import OperatorKey, write_keystore
from node.roles.rerun import Tolerance
from node.serving import NGRAM
from settlement.chain.anvil import Anvil
from settlement.chain.contracts import UNLIMITED, Contracts, Role
from settlement.chain.deploy import deploy
from settlement.chain.parameters import DEVNET, DEVNET_PANEL
from settlement.chain.rpc import Rpc
from settlement.chain.send_journal import Call, SqliteSendJournal
from settlement.chain.sender import Sender
from settlement.hashing import ZERO32
from settlement.records import Claim, Lane, Manifest, Mode, Tier

STAKE: Final = 1_000 * TOKEN
RESERVE: Final = 10 * TOKEN
ETHER: Final = 10**18
CHAIN_ROLE: Final = {"drafter": Role.DRAFTER, "verifier": Role.VERIFIER, "auditor": Role.AUDITOR}
# What every drafter here promises: the least a claim may say. A devnet shows the ledger, not a
# drafter's best; an operator claims what `scripts/eval_draft.py` measured.
CLAIMED: Final = 6
MODES: Final = {"greedy": Mode.GREEDY, "coupled": Mode.COUPLED, "rejection": Mode.REJECTION}
Say = Callable[[str], None]


@dataclass
class World:
    """A running chain with the protocol on it, and everybody who takes part."""

    folder: Path
    anvil: Anvil
    rpc: Rpc
    contracts: Contracts
    book: Path
    operators: list[Operator]
    target: Manifest
    drafts: dict[str, bytes]  # drafter's or auditor's name → draft model id
    claims: dict[str, bytes]  # drafter's name → claim id
    lanes: list[Lane]
    senders: dict[str, Sender] = field(default_factory=dict)

    def of_role(self, role: str) -> list[Operator]:
        return [operator for operator in self.operators if operator.role == role]

    def named(self, address: bytes) -> str:
        """The operator's name, or its address."""
        found = [o.name for o in self.operators if o.address == address]
        return found[0] if found else "0x" + address.hex()

    def sender(self, operator: Operator) -> Sender:
        """The operator's own sender, for what the devnet does in its name."""
        if operator.name not in self.senders:
            path = operator.folder / f"sends-{operator.address.hex()}-{self.rpc.chain_id}.sqlite"
            self.senders[operator.name] = Sender(
                self.rpc,
                operator.key,
                SqliteSendJournal(path),
                errors=self.contracts.errors,
                finality=1,
                poll_seconds=0.02,
            )
        return self.senders[operator.name]


def draft_choice(options: DevnetOptions) -> str:
    """The first drafter's model: asked for, shipped, or none (then prompt lookup)."""
    if options.draft is not None:
        return options.draft
    if options.tiny:
        return "tiny-draft"
    shipped = catalog.SHIPPED / catalog.DEFAULT_DRAFT / RECORD_FILE
    return catalog.DEFAULT_DRAFT if shipped.exists() else NGRAM


def build(options: DevnetOptions, folder: Path, say: Say) -> World:
    """Starts the chain, deploys, makes and funds every operator, stakes and reserves."""
    source = catalog.resolve(options.target, progress=say)
    target = manifest_of(source.path, options.dtype, progress=say)
    anvil = Anvil().start()
    try:
        return _build_on(anvil, options, folder, target, say)
    except BaseException:
        anvil.stop()
        raise


def _build_on(
    anvil: Anvil, options: DevnetOptions, folder: Path, target: Manifest, say: Say
) -> World:
    rpc = Rpc.connect(anvil.url)
    deployer = OperatorKey.generate()
    anvil.set_balance(deployer.address, 10_000 * ETHER)
    sender = Sender(
        rpc,
        deployer.secret,
        SqliteSendJournal(folder / "deployer.sqlite"),
        finality=1,
        poll_seconds=0.02,
    )
    book = folder / "addresses.json"
    parameters = DEVNET_PANEL if options.panel else DEVNET
    contracts = deploy(sender, rpc, book, parameters, progress=say)
    sender = Sender(
        rpc,
        deployer.secret,
        SqliteSendJournal(folder / "deployer.sqlite"),
        errors=contracts.errors,
        finality=1,
        poll_seconds=0.02,
    )
    first_draft = draft_choice(options)
    draft_of = {"drafter-1": first_draft, "drafter-2": NGRAM}
    if options.audits_drafts and first_draft != NGRAM:
        draft_of |= {name: first_draft for name, role in options.roster if role == "auditor"}
    operators = [
        _operator(folder, name, role, draft_of.get(name, "")) for name, role in options.roster
    ]
    world = World(folder, anvil, rpc, contracts, book, operators, target, {}, {}, [])
    say(f"making and funding {len(operators)} operators")
    _send(sender, "register-target", contracts.registry.register(target))
    if target.tier != Tier.EXACT:
        # What the auditors here count as a mismatch; of a model without, nobody is accused.
        honest = Tolerance.of(Tier(target.tier))
        registered = contracts.registry.set_tolerance(
            target.model_id, honest.score, honest.fingerprint, 0
        )
        _send(sender, "tolerance-target", registered)
    drafts: dict[str, bytes] = {}
    for operator in operators:
        anvil.set_balance(operator.address, 100 * ETHER)
        _send(sender, f"mint:{operator.name}", contracts.token.mint(operator.address, 2 * STAKE))
        if operator.draft:
            drafts[operator.name] = _draft_id(sender, contracts, operator, options, say)
    world.drafts = drafts
    say("staking, claiming and reserving")
    for operator in operators:
        if operator.role in CHAIN_ROLE:
            _stake(world, operator)
        if operator.role == "drafter":
            world.claims[operator.name] = _claim(world, operator, options)
    (client,) = world.of_role("client")
    _reserve(world, client)
    sender.close()
    return world


def _operator(folder: Path, name: str, role: str, draft: str) -> Operator:
    place = folder / name
    place.mkdir(parents=True)
    key = OperatorKey.generate()
    password = secrets.token_urlsafe(24)
    operator = Operator(
        name,
        role,
        place,
        key.secret,
        key.address,
        OperatorKey.generate().address,
        draft,
    )
    descriptor = os.open(operator.password_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as out:
        out.write(password + "\n")
    # A light scrypt: these keys live for minutes, and nine strong ones take a minute to unlock.
    write_keystore(operator.keystore, key, password.encode(), scrypt_n=1 << 12)
    return operator


def _send(sender: Sender, intent: str, call: Call) -> None:
    sender.send(f"devnet:{intent}", call, timeout=30.0)


def _draft_id(
    sender: Sender, contracts: Contracts, operator: Operator, options: DevnetOptions, say: Say
) -> bytes:
    """Registers the drafter's model; zero for prompt lookup, which has none."""
    if operator.draft == NGRAM:
        return ZERO32
    source = catalog.resolve(operator.draft, progress=say)
    manifest = manifest_of(source.path, options.draft_dtype, progress=say)
    if not contracts.registry.is_registered(manifest.model_id):
        _send(sender, f"register:{operator.name}", contracts.registry.register(manifest))
        if manifest.tier != Tier.EXACT:
            honest = Tolerance.of(Tier(manifest.tier))
            registered = contracts.registry.set_tolerance(
                manifest.model_id, honest.score, honest.fingerprint, 0
            )
            _send(sender, f"tolerance:{operator.name}", registered)
    return manifest.model_id


def _stake(world: World, operator: Operator) -> None:
    sender, contracts = world.sender(operator), world.contracts
    models = [world.target.model_id]
    if world.drafts.get(operator.name, ZERO32) != ZERO32:
        models.append(world.drafts[operator.name])
    _send(sender, "approve-vault", contracts.token.approve(contracts.vault.address, UNLIMITED))
    _send(
        sender,
        "stake",
        contracts.vault.stake(
            operator.address, operator.beneficiary, CHAIN_ROLE[operator.role], STAKE, models
        ),
    )


def _claim(world: World, operator: Operator, options: DevnetOptions) -> bytes:
    """The drafter's α claim; a drafter without a model can promise nothing and has none."""
    draft = world.drafts[operator.name]
    if draft == ZERO32:
        return ZERO32
    claim = Claim(
        drafter=operator.address,
        target_model=world.target.model_id,
        draft_model=draft,
        mode=MODES[options.mode],
        max_temperature=2 << 16,
        rates=(CLAIMED,) * 16,
        nonce=1,
    )
    _send(world.sender(operator), "claim", world.contracts.ledger.register(claim))
    return claim.struct_hash


def _reserve(world: World, client: Operator) -> None:
    """A reserve on every lane that the client may use."""
    sender, contracts = world.sender(client), world.contracts
    _send(sender, "approve-escrow", contracts.token.approve(contracts.escrow.address, UNLIMITED))
    for drafter in world.of_role("drafter"):
        for verifier in world.of_role("verifier"):
            lane = Lane(
                client.address,
                drafter.address,
                verifier.address,
                contracts.token.address,
                world.claims[drafter.name],
            )
            world.lanes.append(lane)
            intent = f"reserve:{drafter.name}:{verifier.name}"
            _send(sender, intent, contracts.escrow.reserve(lane, RESERVE))
