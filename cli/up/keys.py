"""The keys that a profile names: made where they are missing."""

from typing import TYPE_CHECKING

from cli.profile import ProfileKey
from runtime import keystore

if TYPE_CHECKING:
    from protocol.accounts import LocalAccount


def exists(key: ProfileKey) -> bool:
    return key.keystore.exists()


def ensure_key(key: ProfileKey) -> str:
    """Make the key unless its file exists; its address. Where a password file is named, it gets 32 random bytes; else
    the terminal is asked for a new password."""
    if exists(key):
        return keystore.address_of(key.keystore)
    if key.password_file is not None:
        password = keystore.create_password_file(key.password_file)
    else:
        prompt = f"New password for {key.keystore}: "
        password = keystore.check_strength(keystore.read_password(None, prompt=prompt, confirm=True))
    return str(keystore.create(key.keystore, password).address)


def open_profile_key(key: ProfileKey, what: str) -> "LocalAccount":
    """Raises ConfigError, IntegrityError."""
    return keystore.open_key(key.keystore, key.password_file, what)
