"""`verdraft` and scripts/deploy.py on a chain: an operator's and a client's whole way."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from counter_contract import KEYS
from deployment import OWNER, TOKEN, make_sender

from node.cli import main
from node.keys import OperatorKey, write_keystore
from settlement.chain.anvil import Anvil
from settlement.chain.contracts import Contracts, Role
from settlement.chain.deploy import connect
from settlement.chain.paths import ROOT
from settlement.chain.rpc import Rpc
from settlement.hashing import keccak256
from settlement.records import Manifest, Tier
from settlement.signing import address_of_key

BENEFICIARY = "0x" + "be" * 20
LIGHT = 1 << 12


@pytest.fixture(scope="module")
def anvil() -> Iterator[Anvil]:
    with Anvil() as chain:
        yield chain


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    password = folder / "password"
    password.write_text("secret\n")
    password.chmod(0o600)
    for name, key in (("owner", OWNER), ("client", KEYS[0]), ("drafter", KEYS[1])):
        write_keystore(folder / f"{name}.json", OperatorKey(key), b"secret", scrypt_n=LIGHT)
    return folder


def options(anvil: Anvil, home: Path, who: str) -> list[str]:
    return [
        *("--rpc-url", anvil.url),
        *("--address-book", str(home / "book.json")),
        *("--keystore", str(home / f"{who}.json")),
        *("--password-file", str(home / "password")),
        "--json",
    ]


@pytest.fixture(scope="module")
def deployed(anvil: Anvil, home: Path) -> dict[str, Any]:
    said = subprocess.run(
        [
            sys.executable,
            str(ROOT / "scripts" / "deploy.py"),
            *("--profile", "devnet"),
            *options(anvil, home, "owner"),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=home,
    )
    assert said.returncode == 0, said.stderr
    assert "creating LaneEscrow" in said.stderr  # progress, apart from the result
    result: dict[str, Any] = json.loads(said.stdout)
    return result


@pytest.fixture
def contracts(
    anvil: Anvil, home: Path, deployed: dict[str, Any], tmp_path: Path
) -> Iterator[Contracts]:
    with anvil.rolled_back():
        contracts, _book = connect(anvil.url, Path(deployed["addressBook"]))
        minter = make_sender(Rpc.connect(anvil.url), OWNER, tmp_path / "mint.sqlite", contracts)
        for key in KEYS[:2]:
            call = contracts.token.mint(address_of_key(key), 1000 * TOKEN)
            minter.send(f"mint {key.hex()[:8]}", call)
        yield contracts
    # The chain forgets what the commands sent; so must their journals.
    for path in home.glob("sends-*"):
        path.unlink()


class Shell:
    """Runs commands as one party."""

    def __init__(
        self, anvil: Anvil, home: Path, who: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.options, self._capsys = options(anvil, home, who), capsys

    def __call__(self, *arguments: str) -> dict[str, Any]:
        assert main([*arguments, *self.options]) == 0, self._capsys.readouterr().err
        result: dict[str, Any] = json.loads(self._capsys.readouterr().out)
        return result

    def refused(self, *arguments: str) -> str:
        assert main([*arguments, *self.options]) == 1
        said = self._capsys.readouterr()
        assert json.loads(said.out)["error"]
        return said.err


@pytest.fixture
def drafter(anvil: Anvil, home: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(anvil, home, "drafter", capsys)


@pytest.fixture
def client(anvil: Anvil, home: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(anvil, home, "client", capsys)


@pytest.mark.slow
def test_deploying_twice_by_script_sends_nothing(
    anvil: Anvil, home: Path, contracts: Contracts
) -> None:
    before = contracts.rpc.transaction_count(address_of_key(OWNER))
    said = subprocess.run(
        [
            sys.executable,
            str(ROOT / "scripts" / "deploy.py"),
            *("--profile", "devnet"),
            *options(anvil, home, "owner"),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert contracts.rpc.transaction_count(address_of_key(OWNER)) == before
    assert "creating" not in said.stderr


def test_a_stakes_whole_life(anvil: Anvil, contracts: Contracts, drafter: Shell) -> None:
    stake = ("stake", "--role", "drafter", "--amount")
    assert "--beneficiary" in drafter.refused(*stake, "100")
    assert "2000 VDT are needed" in drafter.refused(*stake, "2000", "--beneficiary", BENEFICIARY)
    done = drafter(*stake, "100", "--beneficiary", BENEFICIARY)
    assert done["active"] == str(100 * TOKEN)
    # Staking twice is two stakes; the beneficiary is known by now.
    assert drafter(*stake, "50.5")["active"] == str(1505 * TOKEN // 10)
    assert "was fixed" in drafter.refused(*stake, "1", "--beneficiary", "0x" + "11" * 20)

    status = drafter("status")
    assert status["stakes"]["drafter"]["active"] == str(1505 * TOKEN // 10)
    assert status["beneficiary"] == BENEFICIARY
    assert status["openTransactions"], "still watched for reorganisations"

    assert "no stake as drafter is on its way" in drafter.refused(
        "withdraw", "stake", "--role", "drafter"
    )
    out = drafter("unstake", "--role", "drafter", "--amount", "150")
    assert "cannot be asked out" in drafter.refused("unstake", "--role", "drafter", "--amount", "1")
    assert "come back then" in drafter.refused("withdraw", "stake", "--role", "drafter")
    anvil.warp(out["matureAt"] - anvil.timestamp)
    done = drafter("withdraw", "stake", "--role", "drafter")
    assert done == {**done, "amount": str(150 * TOKEN), "to": BENEFICIARY}
    assert contracts.token.balance_of(b"\xbe" * 20) == 150 * TOKEN


def test_a_reserves_whole_life(anvil: Anvil, contracts: Contracts, client: Shell) -> None:
    lane = ("--drafter", "0x" + "0d" * 20, "--verifier", "0x" + "0e" * 20)
    assert "holds nothing" in client.refused("withdraw", "reserve", *lane)
    done = client("deposit", *lane, "--amount", "10")
    assert done["reserve"] == str(10 * TOKEN)
    thaw = client("withdraw", "reserve", *lane, "--amount", "4")
    assert thaw["thawing"] == str(4 * TOKEN)
    assert "run this again then" in client.refused("withdraw", "reserve", *lane)
    anvil.warp(thaw["thawedAt"] - anvil.timestamp)
    done = client("withdraw", "reserve", *lane)
    assert done["amount"] == str(4 * TOKEN)
    assert contracts.token.balance_of(address_of_key(KEYS[0])) == 994 * TOKEN
    assert "nothing is payable" in client.refused("withdraw", "payout")


def test_a_claim_is_published_and_shown(
    anvil: Anvil,
    contracts: Contracts,
    drafter: Shell,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    manifest = Manifest("toy", Tier.EXACT, b"\x01" * 32, b"\x02" * 32, 100, (), 64)
    model = "0x" + manifest.model_id.hex()
    publish = ("claim", "publish", "--target", model, "--rates", "80")
    assert "is not registered" in drafter.refused(*publish)
    registrar = make_sender(contracts.rpc, KEYS[2], tmp_path / "register.sqlite", contracts)
    registrar.send("model", contracts.registry.register(manifest))
    claim = drafter(*publish)["claim"]
    chain = drafter.options[:4]
    assert main(["claim", "show", claim, *chain, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["status"] == "active"
    assert shown["rates"] == [80] * 16
    assert main(["claim", "show", claim, *chain]) == 0
    assert "≥0.9" in capsys.readouterr().out
    assert main(["claim", "show", "0x" + keccak256(b"no").hex(), *chain]) == 1


def test_an_empty_purse_and_a_wrong_chain_say_the_way_out(
    anvil: Anvil, contracts: Contracts, drafter: Shell
) -> None:
    anvil.set_balance(address_of_key(KEYS[1]), 1)
    said = drafter.refused(
        "stake", "--role", "drafter", "--amount", "1", "--beneficiary", BENEFICIARY
    )
    assert "chain's own coin" in said
    with Anvil(overrides={"chain-id": 7}) as other:
        drafter.options[1] = other.url
        assert "serves chain 7, expected chain 31337" in drafter.refused("status")


def test_the_status_of_any_address_needs_no_key(
    contracts: Contracts, drafter: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    chain = drafter.options[:4]
    assert main(["status", "--address", "0x" + "77" * 20, *chain]) == 0
    said = capsys.readouterr().out
    assert "stake     none" in said
    assert "0 VDT" in said


def test_a_lane_is_looked_at_thawed_kept_and_begun_anew(
    anvil: Anvil, contracts: Contracts, client: Shell, drafter: Shell
) -> None:
    me, him = ("0x" + address_of_key(KEYS[n]).hex() for n in (0, 1))
    lane = ("--drafter", him, "--verifier", "0x" + "0e" * 20)
    assert "`verdraft deposit` does it" in client.refused("lane", "show", *lane)
    client("deposit", *lane, "--amount", "10")
    assert "nothing of lane" in client.refused("lane", "keep", *lane)
    client("withdraw", "reserve", *lane, "--amount", "4")
    shown = client("lane", "show", *lane)
    assert (shown["reserve"], shown["thawing"]) == (str(10 * TOKEN), str(4 * TOKEN))
    assert client("lane", "keep", *lane)["thawing"] == "0"
    # Any party may begin a new epoch; a stranger is told so before it costs gas.
    assert "no party of this lane" in drafter.refused(
        *("lane", "epoch", "--client", me, "--drafter", me, "--verifier", me)
    )
    opened = drafter("lane", "epoch", *lane, "--client", me)
    assert (opened["before"], opened["epoch"]) == (0, 1)
    assert client("lane", "show", *lane)["epoch"] == 1
    assert "only the client" in drafter.refused("withdraw", "reserve", *lane, "--client", me)


@pytest.mark.slow
def test_a_stake_says_which_models_it_serves(
    contracts: Contracts, drafter: Shell, tmp_path: Path
) -> None:
    serve = ("model", "serve", "tiny-draft", "--role", "drafter")
    assert "has no stake here" in drafter.refused(*serve)
    drafter("stake", "--role", "drafter", "--amount", "5", "--beneficiary", BENEFICIARY)
    assert "`verdraft model register`" in drafter.refused(*serve)
    drafter("model", "register", "tiny-draft")
    served = drafter(*serve)
    assert served["changed"]
    account, model = address_of_key(KEYS[1]), bytes.fromhex(served["model_id"][2:])
    assert contracts.vault.serves(account, Role.DRAFTER, model)
    assert not drafter(*serve)["changed"]
    assert drafter(*serve, "--stop")["changed"]
    assert not contracts.vault.serves(account, Role.DRAFTER, model)


@pytest.mark.slow
def test_another_key_takes_an_account_over(
    contracts: Contracts, client: Shell, drafter: Shell
) -> None:
    old, new = (address_of_key(KEYS[n]) for n in (1, 0))
    assert "has no stake here" in drafter.refused("keys", "rotate", "0x" + new.hex())
    drafter("stake", "--role", "drafter", "--amount", "5", "--beneficiary", BENEFICIARY)
    assert "is or was a key" in drafter.refused("keys", "rotate", "0x" + old.hex())
    assert "KeyNotProposed" in client.refused("keys", "accept", "0x" + old.hex())
    assert "no account" in client.refused("keys", "accept", "0x" + "77" * 20)
    account = drafter("keys", "rotate", "0x" + new.hex())["account"]
    assert client("keys", "accept", account)["before"] == "0x" + old.hex()
    assert contracts.vault.operator_of(old) == new
    unstake = ("unstake", "--role", "drafter", "--all")
    assert "NotForAccount" in drafter.refused(*unstake)
    out = client(*unstake)
    assert (out["account"], out["unbonding"]) == ("0x" + old.hex(), str(5 * TOKEN))


@pytest.mark.slow
def test_shares_of_a_slash_come_out_when_they_have_vested(
    anvil: Anvil, contracts: Contracts, client: Shell, drafter: Shell, tmp_path: Path
) -> None:
    """The owner names itself a judge and slashes the drafter, in the client's name."""
    assert "no shares of slashes" in client.refused("withdraw", "rewards")
    drafter("stake", "--role", "drafter", "--amount", "100", "--beneficiary", BENEFICIARY)
    owner = make_sender(contracts.rpc, OWNER, tmp_path / "judge.sqlite", contracts)
    owner.send("judge", contracts.vault.set_slasher(owner.address, True))
    accused, client_key = address_of_key(KEYS[1]), address_of_key(KEYS[0])
    slash = (accused, int(Role.DRAFTER), 5_000, [], client_key, 5_000, keccak256(b"a fault"))
    owner.send("slash", contracts.vault.transact("slash", *slash))
    said = client.refused("withdraw", "rewards")
    assert "25 VDT are vesting" in said
    anvil.warp(contracts.vault.times().unbonding + 60)
    done = client("withdraw", "rewards")
    assert done["amount"] == str(25 * TOKEN)
    assert contracts.token.balance_of(address_of_key(KEYS[0])) == 1025 * TOKEN
    assert "no shares of slashes" in client.refused("withdraw", "rewards")
