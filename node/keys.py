"""The operator key: one secp256k1 key that signs records, pays gas and is the libp2p identity.

It lies in a Web3 keystore V3 file (scrypt). Passwords come from a prompt, an open file descriptor
or a file that nobody else can read; never from arguments, environment, configuration or logs.
"""

from __future__ import annotations

import getpass
import json
import os
import secrets
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from eth_keyfile.keyfile import create_keyfile_json, decode_keyfile_json

from node.network.identity import peer_id_of_key
from settlement.signing import ORDER, address_of_key

SCRYPT_N: Final = 1 << 18  # what wallets use: a quarter of a gigabyte and about a second
_MAX_KEYSTORE: Final = 1 << 16
_MAX_PASSWORD: Final = 1 << 12


class KeyFault(Exception):
    """Base of what is wrong with a keystore or a password; the message says what to do."""


class KeystoreMissing(KeyFault):
    """There is no keystore file."""


class KeystoreInvalid(KeyFault):
    """The file is no keystore V3."""


class WrongPassword(KeyFault):
    """The password does not open the keystore."""


class PasswordSource(KeyFault):
    """The password cannot be had, or lies where others could read it."""


@dataclass(frozen=True)
class OperatorKey:
    """A node's key. The secret is in no representation of this object."""

    secret: bytes = field(repr=False)  # 32 bytes

    def __post_init__(self) -> None:
        if len(self.secret) != 32 or not 0 < int.from_bytes(self.secret, "big") < ORDER:
            raise KeystoreInvalid("a secp256k1 key is 32 bytes between 1 and the group's order")

    @property
    def address(self) -> bytes:
        """The 20-byte Ethereum address."""
        return address_of_key(self.secret)

    @property
    def peer_id(self) -> str:
        """The libp2p peer id in base58: the same key, so the peer id proves the address."""
        return peer_id_of_key(self.secret)

    @classmethod
    def generate(cls, entropy: Callable[[int], bytes] = secrets.token_bytes) -> OperatorKey:
        while True:  # a draw outside the group happens once in 2**128
            secret = entropy(32)
            if 0 < int.from_bytes(secret, "big") < ORDER:
                return cls(secret)


def write_keystore(
    path: Path, key: OperatorKey, password: bytes, *, scrypt_n: int = SCRYPT_N
) -> None:
    """Write `key` under `password` to a new file of mode 0600. KeyFault if the file exists: an
    overwritten key is lost, and with it the stake's voice."""
    if not password:
        raise PasswordSource("an empty password protects nothing: choose another")
    path.parent.mkdir(parents=True, exist_ok=True)
    content = create_keyfile_json(key.secret, password, kdf="scrypt", iterations=scrypt_n)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise KeyFault(
            f"{path} exists already and is not overwritten. Name another file with --keystore, "
            "or move that one away"
        ) from error
    except OSError as error:
        raise KeyFault(f"{path} cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(handle, "w") as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)  # half a keystore is none
        raise


def read_keystore(path: Path, password: bytes) -> OperatorKey:
    """The key of a keystore V3 file. KeystoreMissing, KeystoreInvalid or WrongPassword."""
    content = _read_json(path)
    try:
        secret = decode_keyfile_json(content, password)
    except ValueError as error:
        if "MAC mismatch" in str(error):
            raise WrongPassword(f"the password does not open {path}") from error
        raise KeystoreInvalid(f"{path} is no keystore V3: {error}") from error
    except (KeyError, TypeError, AttributeError, NotImplementedError) as error:
        raise KeystoreInvalid(f"{path} is no keystore V3: {error!r}") from error
    return OperatorKey(bytes(secret))


def keystore_address(path: Path) -> bytes:
    """The address a keystore says it is for, without its password. It is the file's word."""
    text = _read_json(path).get("address", "")
    try:
        address = bytes.fromhex(str(text).removeprefix("0x"))
    except ValueError as error:
        raise KeystoreInvalid(f"{path} names no address: {text!r}") from error
    if len(address) != 20:
        raise KeystoreInvalid(f"{path} names no address: {text!r}")
    return address


def _read_json(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_KEYSTORE + 1)
    except FileNotFoundError as error:
        raise KeystoreMissing(
            f"there is no keystore at {path}. Make one with `verdraft keys new`, or name it with "
            "--keystore"
        ) from error
    except OSError as error:
        raise KeystoreInvalid(f"{path} cannot be read: {error.strerror}") from error
    try:
        content = json.loads(raw) if len(raw) <= _MAX_KEYSTORE else None
    except ValueError as error:
        raise KeystoreInvalid(f"{path} is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise KeystoreInvalid(f"{path} is no keystore V3")
    return content


# ---------------------------------------------------------------- passwords


def password_from_file(path: Path) -> bytes:
    """The first line of a file that only its owner may read (mode 0600 or stricter)."""
    try:
        # Not blocking: a pipe without a writer is refused below, not waited for.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise PasswordSource(
            f"the password file {path} cannot be read: {error.strerror}"
        ) from error
    try:
        # Of the open file, not of the name, which may point elsewhere by now.
        _require_private(os.fstat(handle), path)
        return _first_line(os.read(handle, _MAX_PASSWORD + 1), str(path))
    finally:
        os.close(handle)


def _require_private(status: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise PasswordSource(f"the password file {path} is no regular file")
    if status.st_mode & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        raise PasswordSource(
            f"others can read the password file {path} (mode {mode:04o}). Run: chmod 600 {path}"
        )
    if status.st_uid not in (os.geteuid(), 0):
        raise PasswordSource(f"the password file {path} belongs to another user")


def password_from_descriptor(descriptor: int) -> bytes:
    """The first line that an inherited file descriptor gives, as from a secrets manager."""
    raw = b""
    try:
        while len(raw) <= _MAX_PASSWORD and b"\n" not in raw:
            chunk = os.read(descriptor, 1024)
            if not chunk:
                break
            raw += chunk
    except OSError as error:
        raise PasswordSource(
            f"file descriptor {descriptor} cannot be read: {error.strerror}"
        ) from error
    return _first_line(raw, f"file descriptor {descriptor}")


def password_from_prompt(*, confirm: bool = False) -> bytes:
    """What a person types at the terminal, unseen; twice when it is a new one."""
    if not sys.stdin.isatty():
        raise PasswordSource(
            "there is no terminal to ask for the password at. Use --password-file (mode 0600) or "
            "--password-fd"
        )
    password = getpass.getpass("Password: ")
    if confirm and getpass.getpass("Again: ") != password:
        raise PasswordSource("the two passwords differ: try again")
    return _first_line(password.encode(), "the prompt")


def _first_line(raw: bytes, source: str) -> bytes:
    line = raw.split(b"\n", 1)[0].removesuffix(b"\r")
    if not line:
        raise PasswordSource(f"{source} gives an empty password")
    if len(line) > _MAX_PASSWORD:
        raise PasswordSource(f"{source} gives more than {_MAX_PASSWORD} bytes for a password")
    return line
