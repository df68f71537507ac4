"""Options that many commands share, and how a key is opened."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from protocol.errors import ConfigError

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

KeystoreOption = Annotated[
    Path | None,
    typer.Option("--keystore", envvar="MUSTER_KEYSTORE", help="Encrypted key file. [see: muster keys create]"),
]
PasswordFileOption = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        envvar="MUSTER_PASSWORD_FILE",
        help="File (mode 0600) with the key's password; asked for if missing.",
    ),
]
DeploymentOption = Annotated[
    Path | None,
    typer.Option("--deployment", envvar="MUSTER_DEPLOYMENT", help="Deployment file: addresses, chain and RPC URL."),
]
RpcOption = Annotated[
    str | None, typer.Option("--rpc", envvar="MUSTER_RPC", help="RPC URL instead of the deployment file's.")
]
PoolOption = Annotated[int, typer.Option("--pool", min=0, help="Number of the pool.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document; amounts are integers in grains.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show and simulate what would be sent; send nothing.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before money moves.")]


def key_path(keystore: Path | None) -> Path:
    """The key file that was named. Raises ConfigError if none was."""
    if keystore is None:
        raise ConfigError("no key file is named", "pass --keystore FILE (or set MUSTER_KEYSTORE)")
    return keystore


def open_key(keystore: Path | None, password_file: Path | None, what: str = "key") -> "LocalAccount":
    """The account in a key file; its password from the file or a prompt. Raises ConfigError, IntegrityError."""
    from protocol.keys import keystore as keys

    path = key_path(keystore)
    address = keys.address_of(path)
    password = keys.read_password(password_file, prompt=f"Password of the {what} {address}: ")
    return keys.load(path, password)
