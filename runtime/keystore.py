"""Encrypted key files (web3 secret storage, version 3) and the passwords that open them.

A key file is readable by its owner only (mode 0600). Passwords come from a file with the same mode or from a prompt,
never from the command line or the environment, where other processes could read them.
"""

import getpass
import json
import re
import secrets
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from eth_utils.address import to_checksum_address

from protocol.accounts import Account, LocalAccount, create_keyfile_json, decode_keyfile_json
from protocol.encoding import parse_json
from protocol.errors import ConfigError, IntegrityError
from protocol.files import check_private, explained, read_bounded, write_atomic, write_file

SCRYPT_N = 1 << 18  # default work factor of scrypt: about 0.6 s and 256 MB to open a key
# For keys whose password is 32 random bytes (the demo's, tests'): stretching adds nothing to such a password
LIGHT_SCRYPT_N = 1 << 12
_MAX_N = 1 << 20
_MAX_BYTES = 64 * 1024
_LEAST_LENGTH, _LEAST_LETTERS = 10, 5


def create(
    path: Path, password: str, *, work_factor: int = SCRYPT_N, wanted: Callable[[str], bool] | None = None
) -> LocalAccount:
    """Make a new key and write it, encrypted, to `path`; never overwrite a key. `wanted` says which addresses will do:
    keys are made until one has such an address.

    Raises ConfigError when the file exists, the password is empty or the folder cannot be written.
    """
    account: LocalAccount = Account.create(secrets.token_hex(32))
    while wanted is not None and not wanted(account.address):
        account = Account.create(secrets.token_hex(32))
    return store(path, account.key, password, work_factor=work_factor)


def store(path: Path, key: bytes, password: str, *, work_factor: int = SCRYPT_N) -> LocalAccount:
    """Encrypt an existing 32-byte private key into `path`; see `create`."""
    if not password:
        raise ConfigError(f"no password for {path}", "choose one: an empty password protects nothing")
    if path.exists():
        raise ConfigError(f"{path} already holds a key", "choose another path, or move that file away first")
    account: LocalAccount = Account.from_key(key)
    document = create_keyfile_json(bytes(key), password.encode(), kdf="scrypt", iterations=work_factor)
    write_file(path, json.dumps(document).encode() + b"\n", "check the folder and its permissions", mode=0o600)
    return account


def load(path: Path, password: str) -> LocalAccount:
    """Decrypt the key in `path`, whichever wallet wrote it.

    Raises ConfigError for a wrong password, a missing or foreign file, IntegrityError when the file is damaged.
    """
    document = _read(path)
    _check_cost(document, path)
    try:
        key = decode_keyfile_json(document, password.encode())
    except ValueError as error:
        if "MAC" in str(error):
            raise ConfigError(f"wrong password for {path}", "try again; the file is unchanged") from None
        raise IntegrityError(f"{path} is damaged: {error}", "restore it from a backup") from None
    except (KeyError, TypeError, NotImplementedError) as error:
        raise IntegrityError(f"{path} is damaged: {error!r}", "restore it from a backup") from None
    account: LocalAccount = Account.from_key(key)
    if "address" in document and account.address != _address(document, path):
        raise IntegrityError(f"{path} names another address than its key's", "restore it from a backup")
    return account


def open_key(path: Path, password_file: Path | None, what: str = "key") -> LocalAccount:
    """Return the account in a key file; its password comes from a file or, on a terminal, from a prompt that names
    `what`. Raises ConfigError, IntegrityError."""
    document = _read(path)
    named = f"{_address(document, path)} ({path})" if "address" in document else str(path)
    return load(path, read_password(password_file, prompt=f"Password of the {what} {named}: "))


def address_of(path: Path) -> str:
    """Return the checksum address that a key file names, for which no password is needed. Raises ConfigError for a file
    without one, as Foundry writes them."""
    document = _read(path)
    if "address" not in document:
        hint = f'add the field "address" to it; `cast wallet address --keystore {path}` prints what belongs there'
        raise ConfigError(f"{path} names no address", hint)
    return _address(document, path)


def read_password(path: Path | None, *, prompt: str = "Password: ", confirm: bool = False) -> str:
    """Return the password in the file `path` (mode 0600; its last line end is dropped), or ask for it on the terminal.
    Raises ConfigError for a file that ends in further white space, which is hardly ever meant."""
    if path is not None:
        return _password_file(path)
    if not sys.stdin.isatty():
        raise ConfigError("no terminal to ask for a password", "name a password file (mode 0600)")
    password = getpass.getpass(prompt)
    if not password:
        raise ConfigError("the password is empty", "type one")
    if confirm and getpass.getpass("Again: ") != password:
        raise ConfigError("the two passwords differ", "try again; nothing was written")
    return password


def check_strength(password: str) -> str:
    """Return the password if it is worth encrypting a key with. Raises ConfigError for a short one: a thief of the key
    file can try millions."""
    if len(password) < _LEAST_LENGTH or len(set(password)) < _LEAST_LETTERS:
        what = f"the password is too weak: it needs {_LEAST_LENGTH} characters, {_LEAST_LETTERS} of them different"
        raise ConfigError(what, "choose a longer one, such as four random words; nothing was written")
    return password


def create_password_file(path: Path) -> str:
    """Write 32 random bytes as hex to a new file of mode 0600 and return them; of a file that exists, its password."""
    if path.exists():
        return _password_file(path)
    password = secrets.token_hex(32)
    write_atomic(path, password.encode() + b"\n", 0o600)
    return password


def ensure_key(path: Path, password_file: Path | None) -> str:
    """Make a key unless its file exists; return its address. Where a password file is named, it gets 32 random bytes;
    else the terminal is asked for a new password."""
    if path.exists():
        return address_of(path)
    if password_file is not None:
        password = create_password_file(password_file)
    else:
        password = check_strength(read_password(None, prompt=f"New password for {path}: ", confirm=True))
    return str(create(path, password).address)


def _password_file(path: Path) -> str:
    check_private(path, "the password file ")
    try:
        text = _decoded(read_bounded(path, 4096, "the password file "))
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text", "name the right file") from None
    password = text.removesuffix("\n").removesuffix("\r")
    if not password:
        raise ConfigError(f"{path} is empty", "write the password into it")
    if password != password.rstrip():
        raise ConfigError(f"{path} has white space at its end", "remove it, or type the password on a terminal")
    return password


def _read(path: Path) -> dict[str, Any]:
    with explained(f"read the key file {path}", "check the path"), path.open("rb") as file:
        data = file.read(_MAX_BYTES + 1)
    document: Any = {}
    with suppress(ValueError):
        document = parse_json(_decoded(data).encode()) if len(data) <= _MAX_BYTES else {}
    document = document if isinstance(document, dict) else {}
    if _has_duplicates(document):
        raise IntegrityError(f"{path} has a field twice, in different capitals", "restore it from a backup")
    lowered = _lower_case(document)  # MyEtherWallet and ethers write `Crypto`
    if lowered.get("version") != 3 or not isinstance(lowered.get("crypto"), dict):
        raise ConfigError(f"{path} is not a version 3 key file", "name a key file, or make one: muster keys create")
    if lowered.get("address", "") is None:
        del lowered["address"]
    return lowered


def _decoded(data: bytes) -> str:
    """Return the text of a file in UTF-8, or in UTF-16 with its mark, as PowerShell writes it."""
    return data.decode("utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig")


def _has_duplicates(part: Any) -> bool:
    """Return whether field names differ in capitals only: eth_keyfile ignores capitals, and might use another field
    than was checked here."""
    if not isinstance(part, dict):
        return False
    return len({name.lower() for name in part}) != len(part) or any(map(_has_duplicates, part.values()))


def _lower_case(part: dict[str, Any]) -> dict[str, Any]:
    return {name.lower(): _lower_case(value) if isinstance(value, dict) else value for name, value in part.items()}


def _check_cost(document: dict[str, Any], path: Path) -> None:
    """Refuse parameters that would exhaust memory before the password is even tried."""
    kdf, params = document["crypto"].get("kdf"), document["crypto"].get("kdfparams")
    bounds = {"scrypt": {"n": _MAX_N, "r": 8, "p": 16, "dklen": 32}, "pbkdf2": {"c": 10_000_000, "dklen": 32}}
    if kdf not in bounds or not isinstance(params, dict):
        raise IntegrityError(f"{path} uses an unknown key derivation", "restore it from a backup")
    for name, most in bounds[kdf].items():
        value = params.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            raise IntegrityError(f"{path}: {kdf} parameter {name} is outside 1 to {most}", "restore it from a backup")


def _address(document: dict[str, Any], path: Path) -> str:
    address = document["address"]
    if not isinstance(address, str) or not re.fullmatch(r"(0x)?[0-9a-fA-F]{40}", address):
        raise IntegrityError(f"{path} names no valid address", "restore it from a backup")
    return str(to_checksum_address("0x" + address.removeprefix("0x")))
