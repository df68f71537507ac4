"""`muster keys`: encrypted key files. A private key or a password never appears on a command line."""

import getpass
import os
import re
import secrets
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from typer import Option

from cli.options import (
    AmountOption,
    Commands,
    KeyOptions,
    KeystoreOption,
    Paying,
    Reading,
    address_option,
    key_path,
)
from cli.output import emit
from cli.plan import PlannedTransaction, act
from protocol.encoding import show_tokens
from protocol.errors import ConfigError
from protocol.files import sync

app = Commands(help="Encrypted key files.", no_args_is_help=True)
_KEY = re.compile(r"(?:0x)?([0-9a-fA-F]{64})")
_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141


@app.command("create", "muster keys create --keystore operator.json")
def create(
    key: KeyOptions,
    existing: Annotated[bool, Option("--import", help="Encrypt your own private key, asked for or piped.")] = False,
    length_tier: Annotated[
        str | None, Option(metavar="C/N", help="For a node: its length tier C of N; 1: the shortest responses.")
    ] = None,
) -> None:
    """Make a new key, or import one, encrypted with a password, in a new file that only you can read."""
    from runtime import keystore as keys

    path, wanted = key_path(key.keystore), _of_tier(length_tier) if length_tier else None
    if path.exists():
        raise ConfigError(f"{path} already holds a key", "choose another path, or move that file away first")
    secret = _read_private_key() if existing else None
    password = _new_password(key.password_file, path)
    account = keys.create(path, password, wanted=wanted) if secret is None else keys.store(path, secret, password)
    _report(str(account.address), path, key.json)


def _of_tier(text: str) -> Callable[[str], bool]:
    """Return which addresses are of the length tier that was asked for. Raises ConfigError for what names none."""
    from protocol.seeds import length_tier

    match = re.fullmatch(r"([1-9][0-9]?)/([1-9][0-9]?)", text)
    number, classes = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= number <= classes <= 16:
        raise ConfigError(f"`{text}` is not a length tier", "write 2/3 for the second of three, from weak to strong")
    return lambda address: length_tier(address, classes) == number - 1


@app.command("change-password", "muster keys change-password --keystore operator.json")
def change_password(
    key: KeyOptions,
    new_password_file: Annotated[Path | None, Option(help="File (mode 0600) with the new one; else asked for.")] = None,
) -> None:
    """Encrypt a key with another password; the old file stays until the new one was read back."""
    from runtime import keystore as keys

    path = key_path(key.keystore)
    account = keys.open_key(path, key.password_file)
    password = _new_password(new_password_file, path)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        keys.store(draft, bytes(account.key), password)
        if keys.load(draft, password).address != account.address:
            raise ConfigError(f"the new copy of {path} is not readable", "check the disk; the old file is unchanged")
        os.replace(draft, path)
        sync(path.parent)
    finally:
        draft.unlink(missing_ok=True)
    _report(account.address, path, key.json)


@app.command("show", "muster keys show --keystore operator.json")
def show(
    look: Reading,
    keystore: KeystoreOption = None,
    who: Annotated[str | None, address_option("--address", "An address instead of a key file.")] = None,
) -> None:
    """Show a key's address and, with a deployment, its tokens and ether for gas; needs no password."""
    from runtime import keystore as keys

    address = who or keys.address_of(key_path(keystore))
    if look.deployment is None:
        emit({"address": address}, look.json, lambda: address)
        return
    session = look.open()
    base_units, wei = session.suite.token.balance_of(address), session.client.balance(address)
    text = f"{address}: {show_tokens(base_units)} tokens, {wei / 10**18:.6f} ETH"
    emit({"address": address, "base_units": base_units, "wei": wei}, look.json, lambda: text)


@app.command("send", "muster keys send --to ADDRESS --amount 250 --dry-run")
def send(to: Annotated[str, address_option("--to", "Who gets the tokens.")], amount: AmountOption, by: Paying) -> None:
    """Send tokens to somebody, such as a newcomer's first stake."""
    session = by.open()
    call = replace(session.suite.token.transfer(to, amount), base_units=amount)
    act(session, [PlannedTransaction(f"send {show_tokens(amount)} tokens to {to}", call)], by, to=to, base_units=amount)


def _new_password(file: Path | None, path: Path) -> str:
    """Return the password that a key file gets. Raises ConfigError for a weak one."""
    from runtime import keystore as keys

    return keys.check_strength(keys.read_password(file, prompt=f"New password for {path}: ", confirm=True))


def _read_private_key() -> bytes:
    text = getpass.getpass("Private key (64 hex digits): ") if sys.stdin.isatty() else sys.stdin.readline(200)
    match = _KEY.fullmatch(text.strip())
    if match is None or not 0 < int(match[1], 16) < _ORDER:
        raise ConfigError("that is not a private key (64 hex digits)", "type it again; nothing was written")
    return bytes.fromhex(match[1])


def _report(address: str, path: Path, as_json: bool) -> None:
    emit({"address": address, "keystore": str(path)}, as_json, lambda: f"{address}\nkey file: {path}")
