"""Key files of other wallets, and password files of other editors."""

import json
from pathlib import Path

import pytest

from protocol.errors import ConfigError
from runtime import keystore
from tests.outside.lines import Handler, Line
from tests.runtime.wallets import by_ethers, by_foundry


def _other_wallet(line: Line, folder: Path) -> None:
    path, password = folder / "key.json", folder / "password"
    account = keystore.create(path, keystore.create_password_file(password), work_factor=keystore.LIGHT_SCRYPT_N)
    written = by_ethers if "`Crypto`" in line["input"] else by_foundry
    path.write_text(json.dumps(written(json.loads(path.read_text()))))
    assert keystore.load(path, password.read_text().strip()).key == account.key
    assert keystore.open_key(path, password).address == account.address


def _password_file(line: Line, folder: Path) -> None:
    path = folder / "password"
    path.touch(0o600)
    if "byte order mark" in line["input"]:
        path.write_text("two words\n", encoding="utf-16" if "UTF-16" in line["input"] else "utf-8-sig")
        assert keystore.read_password(path) == "two words"
        return
    for text in ("two words\n\n", "two words \n"):
        path.write_text(text)
        with pytest.raises(ConfigError, match="has white space at its end"):
            keystore.read_password(path)


HANDLERS: dict[str, Handler] = {"keystore-other-wallets": _other_wallet, "password-file": _password_file}
