"""Every function that changes a contract's state, and who may call it when.

The list below is complete or the first test fails: a new function has to be put into it. What it
says is then seen on a deployed set: each guarded function refuses a stranger for the reason named,
and while both pauses are in force exactly what brings new money in is refused for the pause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from counter_contract import KEYS
from deployment import make_sender
from eth_abi import encode
from evm import type_of

from settlement.chain.address_book import AddressBook
from settlement.chain.anvil import Anvil
from settlement.chain.compile import Artifacts, compile_contracts
from settlement.chain.deploy import deploy
from settlement.chain.errors import RpcFailed
from settlement.chain.parameters import DEVNET
from settlement.chain.paths import CONTRACTS
from settlement.chain.rpc import Rpc
from settlement.hashing import keccak256
from settlement.signing import address_of_key

# Why a stranger is refused, whatever he sends.
OWNER: Final = "OwnableUnauthorizedAccount"
# Stopped by a pause, and by nothing else on this list.
NEW_MONEY: Final = "PausedUntil"
# Open to all or to the parties of what it is about: the contracts' own tests say to whom.
OPEN: Final = ""


def _open(names: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), OPEN)


OWNABLE: Final = {"acceptOwnership": OWNER, "renounceOwnership": OWNER, "transferOwnership": OWNER}
PAUSE: Final = {"pause": "NotGuardian", "unpause": "NotGuardian", "setGuardian": OWNER}
BONDS: Final = {"pullBond": OPEN, "burn": OPEN}
COURT: Final = {**OWNABLE, **BONDS, "setTerms": OWNER, "file": OPEN, "forfeit": OPEN}
DEMANDS: Final = {**OWNABLE, "pullBond": OPEN, "setTerms": OWNER, "answer": OPEN, "expire": OPEN}

ENTRY_POINTS: Final[dict[str, dict[str, str]]] = {
    "StakeVault": {
        **OWNABLE,
        **PAUSE,
        "stake": NEW_MONEY,
        "stakeWithPermit": NEW_MONEY,
        "wire": OWNER,
        "setSlasher": OWNER,
        "setTimes": OWNER,
        "setClock": OWNER,
        "setLeastStake": OWNER,
        "lock": "NotEscrow",
        "slash": "NotSlasher",
        **_open(
            "setModel unstake withdraw proposeKey acceptKey cover releaseLocks claimVested burn"
        ),
    },
    "LaneEscrow": {
        **OWNABLE,
        **PAUSE,
        "reserve": NEW_MONEY,
        "reserveWithPermit": NEW_MONEY,
        "wire": OWNER,
        "setParameters": OWNER,
        "listToken": OWNER,
        "delistToken": OWNER,
        "setFeeSpender": OWNER,
        "spendFees": "NotFeeSpender",
        **_open("thaw cancelThaw collectThawed openEpoch noticeSolo endSolo withdraw settle"),
    },
    "AlphaLedger": {
        **OWNABLE,
        "wire": OWNER,
        "setJudge": OWNER,
        "setParameters": OWNER,
        "record": "NotEscrow",
        "refute": "NotJudge",
        "uphold": "NotJudge",
        "exclude": "NotJudge",
        **_open("register flag assertDraftModel expire conclude pullBond"),
    },
    "DrawBeacon": {
        **OWNABLE,
        "wire": OWNER,
        "setTerms": OWNER,
        "setReward": OWNER,
        "registerBatch": "NotEscrow",
        **_open("capture draw open expire"),
    },
    "FaultCourt": {
        **COURT,
        **_open(
            "proveDraftTwice proveVerdictTwice proveOtherDraft proveAcceptRule proveDraftLeaf "
            "proveDraftRound proveVerdictRound proveRoundFit proveLeafPlace proveAllLeaves "
            "proveRecord proveSums proveRoundTwice"
        ),
    },
    "ExactDispute": {**COURT, "proveToken": OPEN, "proveElement": OPEN},
    "EvidenceDemands": {**DEMANDS, "demandLeaf": OPEN},
    "SessionDemands": {
        **DEMANDS,
        "setReader": OWNER,
        **_open("demandSession contest close"),
    },
    "ModelRegistry": {**OWNABLE, "register": OPEN, "setTolerance": OWNER},
    "AuditorPool": {**OWNABLE, "setMinStake": OWNER, "sync": OPEN},
    "Juries": {
        **OWNABLE,
        "setCourt": OWNER,
        "setTerms": OWNER,
        "summon": "NotCourt",
        "open": OPEN,
        "cancel": OPEN,
        **_open("seat commit reveal dismiss"),
    },
    "PanelTerms": {**OWNABLE, "setTerms": OWNER, "setFee": OWNER, "setReferrer": OWNER},
    "AuditTerms": {**OWNABLE, "setTerms": OWNER, "setFee": OWNER},
    "AuditPanel": {
        **BONDS,
        **_open("accuse refer openPrint decide appeal conclude payJuror"),
    },
    "ClaimJudge": {"refute": OPEN, "exclude": OPEN},
    "JurorDemands": {"demand": OPEN, "refund": OPEN},
    "SampleAudits": {
        **BONDS,
        **_open("enter name plant lapse openPrint expire finish refer conclude punish pay"),
    },
    # Minted at will on devnets; the rest is ERC-20's.
    "DevToken": {
        "mint": OWNER,
        "renounceOwnership": OWNER,
        "transferOwnership": OWNER,
        **_open("approve burn burnFrom permit transfer transferFrom"),
    },
}

# Every parameter that the owner may change: what keeps the value of its own time, and the test that
# shows it; and the test of its bounds.
SNAPSHOTS: Final = {
    "StakeVault.setTimes": (
        "test_fault15_exitKeepsThePeriodItBeganWith",
        "test_fault15_lockKeepsTheWindowItBeganWith",
        "test_fault3_unbondingCannotOverflow",
        "test_fault1_unbondingCoversEverythingThatIsJudged",
    ),
    "StakeVault.setLeastStake": (
        "test_slash_APoorStakeSettlesNoFault",
        "test_slash_AStakeOfTheLeastSettlesTheFault",
        "test_slash_ALeastStakeMovesInStepsAndLater",
    ),
    "LaneEscrow.setParameters": (
        "test_fault15_epochKeepsItsFee",
        "test_owner_parametersAreBounded",
    ),
    "LaneEscrow.listToken": ("test_owner_parametersAreBounded",),
    "AlphaLedger.setParameters": (
        "test_ParametersDoNotReachOpenCases",
        "test_SilenceIsNeverCheaperThanRefutation",
    ),
    "DrawBeacon.setTerms": ("test_TermsAreThoseOfSettlement", "test_TermsHaveBounds"),
    "FaultCourt.setTerms": (
        "test_FilingTakesABondAndKeepsItsTerms",
        "test_TermsHaveBounds",
    ),
    "ExactDispute.setTerms": ("test_FilingTakesABondAndKeepsItsTerms", "test_TermsHaveBounds"),
    "EvidenceDemands.setTerms": ("test_Audit15_ADemandKeepsItsTerms", "test_TermsHaveBounds"),
    "SessionDemands.setTerms": ("test_Audit15_ADemandKeepsItsTerms", "test_TermsHaveBounds"),
    "Juries.setTerms": ("test_OnlyTheOwnerSetsTermsAndCourts",),
    "PanelTerms.setTerms": (
        "test_ABatchIsJudgedByTheTermsOfItsSettlement",
        "test_TermsHaveTheirBounds",
    ),
    "AuditTerms.setTerms": ("test_TermsHaveTheirBounds",),
    "ModelRegistry.setTolerance": (
        "test_fault15_toleranceByTheTimeItStood",
        "test_tolerance_revertWhen_notAllowed",
    ),
}
# What the owner names or sets beside: no measure that a batch is judged by.
NAMES_ONLY: Final = {
    "StakeVault": {"wire", "setSlasher", "setGuardian", "setClock"},
    "LaneEscrow": {"wire", "setGuardian", "delistToken", "setFeeSpender"},
    "AlphaLedger": {"wire", "setJudge"},
    "DrawBeacon": {"wire", "setReward"},
    "SessionDemands": {"setReader"},
    "AuditorPool": {"setMinStake"},
    "Juries": {"setCourt"},
    "PanelTerms": {"setReferrer", "setFee"},
    "AuditTerms": {"setFee"},
    "DevToken": {"mint"},
}

STRANGER: Final = bytes.fromhex("5712a46e") * 5


def changing(artifacts: Artifacts, contract: str) -> dict[str, dict[str, Any]]:
    """The ABI of the functions that are neither view nor pure, by name."""
    return {
        item["name"]: item
        for item in artifacts.require(contract).abi
        if item["type"] == "function" and item["stateMutability"] not in ("view", "pure")
    }


def empty_call(item: dict[str, Any]) -> bytes:
    """A call with zeros and empty lists throughout."""

    def zero(part: dict[str, Any]) -> Any:
        kind: str = part["type"]
        if kind.endswith("[]"):
            return []
        if match := re.fullmatch(r"(.*)\[(\d+)\]", kind):
            return [zero({**part, "type": match[1]})] * int(match[2])
        if kind == "tuple":
            return tuple(zero(inner) for inner in part["components"])
        if kind == "address":
            return "0x" + "00" * 20
        if kind in ("bytes", "string"):
            return b"" if kind == "bytes" else ""
        if kind.startswith("bytes"):
            return bytes(int(kind[5:]))
        return False if kind == "bool" else 0

    types = [type_of(part) for part in item["inputs"]]
    selector = keccak256(f"{item['name']}({','.join(types)})".encode())[:4]
    return selector + encode(types, [zero(part) for part in item["inputs"]])


@pytest.fixture(scope="module")
def artifacts() -> Artifacts:
    return compile_contracts()


def test_every_entry_point_is_listed(artifacts: Artifacts) -> None:
    concrete = {
        artifact.name
        for artifact in artifacts.values()
        if artifact.bytecode and (CONTRACTS / f"{artifact.name}.sol").exists()
    }
    with_state = {name for name in concrete if changing(artifacts, name)}
    assert with_state == set(ENTRY_POINTS)
    for name, listed in ENTRY_POINTS.items():
        assert set(changing(artifacts, name)) == set(listed), name


def test_every_parameter_is_bounded_and_kept() -> None:
    sources = "\n".join(p.read_text() for p in (CONTRACTS / "test").rglob("*.t.sol"))
    setters = {
        f"{contract}.{name}"
        for contract, functions in ENTRY_POINTS.items()
        for name, reason in functions.items()
        if reason == OWNER and name not in OWNABLE
    }
    naming = {f"{contract}.{name}" for contract, names in NAMES_ONLY.items() for name in names}
    assert setters == set(SNAPSHOTS) | naming
    for name, tests in SNAPSHOTS.items():
        for test in tests:
            assert f"function {test}(" in sources, f"{name}: no test {test}"


class Deployed:
    """One devnet deployment, asked without sending."""

    def __init__(self, rpc: Rpc, book: AddressBook, artifacts: Artifacts) -> None:
        self.rpc, self.book, self.artifacts = rpc, book, artifacts
        self.errors = {
            keccak256(f"{item['name']}({','.join(map(type_of, item['inputs']))})".encode())[:4]: (
                item["name"]
            )
            for artifact in artifacts.values()
            for item in artifact.abi
            if item["type"] == "error"
        }

    def why_not(self, contract: str, item: dict[str, Any], caller: bytes) -> str:
        """The name of the error an empty call reverts with; "" where it does not."""
        address = self.book.addresses["Token" if contract == "DevToken" else contract]
        call = {
            "from": "0x" + caller.hex(),
            "to": "0x" + address.hex(),
            "data": "0x" + empty_call(item).hex(),
        }
        try:
            self.rpc.request("eth_call", call, "latest")
        except RpcFailed as error:
            selector = bytes.fromhex(error.data.removeprefix("0x"))[:4]
            return self.errors.get(selector, f"0x{selector.hex()}")
        return ""


@pytest.fixture(scope="module")
def deployed(artifacts: Artifacts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    folder: Path = tmp_path_factory.mktemp("entry-points")
    with Anvil() as chain:
        rpc = Rpc.connect(chain.url)
        sender = make_sender(rpc, KEYS[0], folder / "sends.sqlite")
        deploy(sender, rpc, folder / "book.json", DEVNET, artifacts=artifacts)
        yield Deployed(rpc, AddressBook.read(folder / "book.json"), artifacts)


def test_a_stranger_is_refused(deployed: Deployed) -> None:
    for contract, functions in ENTRY_POINTS.items():
        abi = changing(deployed.artifacts, contract)
        for name, reason in functions.items():
            if reason in (OPEN, NEW_MONEY):
                continue
            found = deployed.why_not(contract, abi[name], STRANGER)
            assert found == reason, f"{contract}.{name}"


def test_a_pause_stops_new_money_and_nothing_else(deployed: Deployed) -> None:
    guardian = "0x" + address_of_key(KEYS[0]).hex()

    def send(contract: str, data: str) -> None:
        to = "0x" + deployed.book.addresses[contract].hex()
        deployed.rpc.request("eth_sendTransaction", {"from": guardian, "to": to, "data": data})
        deployed.rpc.request("evm_mine")

    def stopped() -> set[str]:
        return {
            f"{contract}.{name}"
            for contract in ENTRY_POINTS
            for name, item in changing(deployed.artifacts, contract).items()
            if deployed.why_not(contract, item, address_of_key(KEYS[0])) == NEW_MONEY
        }

    expected = {
        f"{contract}.{name}"
        for contract, functions in ENTRY_POINTS.items()
        for name, reason in functions.items()
        if reason == NEW_MONEY
    }
    assert stopped() == set()
    span = 3 * 24 * 3600
    for contract in ("StakeVault", "LaneEscrow"):
        send(contract, "0x" + (keccak256(b"pause(uint64)")[:4] + span.to_bytes(32, "big")).hex())
    assert stopped() == expected
    deployed.rpc.request("evm_increaseTime", span)
    deployed.rpc.request("evm_mine")
    assert stopped() == set(), "a pause ends by itself"
