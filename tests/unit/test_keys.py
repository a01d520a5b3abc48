"""Keystores and passwords: what opens a key, and what is refused and why."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from node.keys import (
    KeyFault,
    KeystoreInvalid,
    KeystoreMissing,
    OperatorKey,
    PasswordSource,
    WrongPassword,
    keystore_address,
    password_from_descriptor,
    password_from_file,
    password_from_prompt,
    read_keystore,
    write_keystore,
)
from node.network.identity import address_of_peer_id

LIGHT = 1 << 12  # scrypt's cost is not what is tested here

# The Web3 Secret Storage Definition's own scrypt test vector.
SPEC_KEYSTORE = {
    "crypto": {
        "cipher": "aes-128-ctr",
        "cipherparams": {"iv": "83dbcc02d8ccb40e466191a123791e0e"},
        "ciphertext": "d172bf743a674da9cdad04534d56926ef8358534d458fffccd4e6ad2fbde479c",
        "kdf": "scrypt",
        "kdfparams": {
            "dklen": 32,
            "n": 262144,
            "p": 8,
            "r": 1,
            "salt": "ab0c7876052600dd703518d6fc3fe8984592145b591fc8fb5c6d43190334ba19",
        },
        "mac": "2103ac29920d71da29f15d75b4a16dbe95cfd7ff8faea1056c33131d846e3097",
    },
    "id": "3198bc9c-6672-5ab3-d995-4942343ae5b6",
    "version": 3,
}


@pytest.mark.slow  # the vector's scrypt takes seconds
def test_the_definitions_own_keystore_opens(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(SPEC_KEYSTORE))
    key = read_keystore(path, b"testpassword")
    assert key.secret.hex() == "7a28b5ba57c53603b0b07b56bba752f7784bf506fa95edc395f5cf6c7514fe9d"
    assert key.address.hex() == "008aeeda4d805471df9b2a5b0f38a0c3bcba786b"


def test_a_key_comes_back_as_it_went(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "operator.json"
    key = OperatorKey.generate()
    write_keystore(path, key, b"correct horse", scrypt_n=LIGHT)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_keystore(path, b"correct horse") == key
    assert keystore_address(path) == key.address
    with pytest.raises(WrongPassword, match="does not open"):
        read_keystore(path, b"battery staple")


def test_a_keystore_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "operator.json"
    key = OperatorKey.generate()
    write_keystore(path, key, b"one", scrypt_n=LIGHT)
    with pytest.raises(KeyFault, match="not overwritten"):
        write_keystore(path, OperatorKey.generate(), b"two", scrypt_n=LIGHT)
    assert read_keystore(path, b"one") == key


def test_the_peer_id_proves_the_address() -> None:
    key = OperatorKey(bytes(31) + b"\x01")
    assert key.address.hex() == "7e5f4552091a69125d5dfcb7b8c2659029395bdf"  # a published pair
    assert key.peer_id.startswith("16Uiu2HA")
    assert address_of_peer_id(key.peer_id) == key.address


def test_no_representation_holds_the_secret() -> None:
    key = OperatorKey.generate()
    for text in (repr(key), str(key), f"{key}"):
        assert key.secret.hex() not in text
        assert repr(key.secret)[2:-1] not in text


@pytest.mark.parametrize("secret", [b"", bytes(32), b"\xff" * 32, b"\x01" * 31, b"\x01" * 33])
def test_what_is_no_key_is_refused(secret: bytes) -> None:
    with pytest.raises(KeystoreInvalid):
        OperatorKey(secret)


def test_drawing_goes_on_until_a_key_lies_in_the_group() -> None:
    draws = iter([b"\xff" * 32, bytes(32), b"\x05" * 32])
    assert OperatorKey.generate(lambda _n: next(draws)).secret == b"\x05" * 32


@pytest.mark.parametrize(
    "content",
    [
        "",
        "no json",
        "[]",
        "{}",
        '{"version": 4}',
        '{"version": 3, "crypto": {}}',
        '{"version": 3, "crypto": {"kdf": "rot13"}}',
        "{" + " " * (1 << 17) + "}",
    ],
)
def test_a_broken_keystore_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(content)
    with pytest.raises(KeystoreInvalid, match=r"broken\.json"):
        read_keystore(path, b"x")
    with pytest.raises(KeystoreInvalid):
        keystore_address(path)


def test_a_missing_keystore_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(KeystoreMissing, match="verdraft keys new"):
        read_keystore(tmp_path / "none.json", b"x")


# ---------------------------------------------------------------- passwords


def password_file(tmp_path: Path, content: bytes, mode: int) -> Path:
    path = tmp_path / "password"
    path.write_bytes(content)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_password_files_first_line_counts(tmp_path: Path, mode: int) -> None:
    path = password_file(tmp_path, b"secret \r\nnotes\n", mode)
    assert password_from_file(path) == b"secret "


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o610, 0o644, 0o666, 0o700 | 0o007])
def test_a_password_that_others_can_reach_is_refused(tmp_path: Path, mode: int) -> None:
    path = password_file(tmp_path, b"secret\n", mode)
    with pytest.raises(PasswordSource, match="chmod 600"):
        password_from_file(path)


@pytest.mark.parametrize("content", [b"", b"\nsecret\n", b"x" * 5000])
def test_an_unusable_password_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(PasswordSource):
        password_from_file(password_file(tmp_path, content, 0o600))
    with pytest.raises(PasswordSource, match="empty"):
        write_keystore(tmp_path / "k.json", OperatorKey.generate(), b"", scrypt_n=LIGHT)


def test_a_folder_or_nothing_is_no_password_file(tmp_path: Path) -> None:
    with pytest.raises(PasswordSource, match="cannot be read"):
        password_from_file(tmp_path / "none")
    with pytest.raises(PasswordSource, match="no regular file"):
        password_from_file(tmp_path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(PasswordSource, match="no regular file"):
        password_from_file(tmp_path / "pipe")


def test_a_descriptor_gives_one_line() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"sec")
    os.write(writer, b"ret\nmore")
    assert password_from_descriptor(reader) == b"secret"
    os.close(reader)
    os.close(writer)
    with pytest.raises(PasswordSource, match="descriptor"):
        password_from_descriptor(reader)


def test_without_a_terminal_the_prompt_names_the_other_ways(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    with pytest.raises(PasswordSource, match="--password-file"):
        password_from_prompt()


def test_a_new_password_is_typed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    typed = iter(["one", "one", "one", "two"])
    monkeypatch.setattr("getpass.getpass", lambda _prompt: next(typed))
    assert password_from_prompt(confirm=True) == b"one"
    with pytest.raises(PasswordSource, match="differ"):
        password_from_prompt(confirm=True)
