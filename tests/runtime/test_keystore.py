"""Key files and passwords: what is written, who may read it, and what is said when something is wrong."""

import json
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from protocol.accounts import Account
from protocol.errors import ConfigError, IntegrityError
from runtime import keystore
from tests.runtime.wallets import by_ethers, by_foundry, by_powershell

LIGHT = keystore.LIGHT_SCRYPT_N


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A key file whose password is `p`."""
    keystore.create(tmp_path / "k.json", "p", work_factor=LIGHT)
    return tmp_path / "k.json"


def test_a_key_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "node.json"
    account = keystore.create(path, "correct horse", work_factor=LIGHT)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert keystore.address_of(path) == account.address
    assert keystore.load(path, "correct horse").key == account.key
    assert account.key.hex() not in path.read_text()
    assert [p.name for p in path.parent.iterdir()] == ["node.json"]
    assert Account.decrypt(path.read_text(), "correct horse") == account.key


def test_the_default_work_factor_is_the_standards(tmp_path: Path) -> None:
    keystore.create(tmp_path / "k.json", "p")
    assert json.loads((tmp_path / "k.json").read_text())["crypto"]["kdfparams"]["n"] == 1 << 18


def test_neither_a_wrong_password_nor_another_key_harms_a_key(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=r"wrong password for .*k.json; try again"):
        keystore.load(path, "wrong")
    with pytest.raises(ConfigError, match="already holds a key"):
        keystore.create(path, "b", work_factor=LIGHT)
    assert path.read_bytes() == before
    with pytest.raises(ConfigError, match="no password"):
        keystore.create(path.parent / "other.json", "")


def test_missing_and_foreign_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the key file .*none.json"):
        keystore.load(tmp_path / "none.json", "p")
    for content in (b"", b"{}", b"[]", b"\xff\xfe", b'{"version":3}', b"[" * 50_000, b"x" * 200_000, b'{"version":4}'):
        path = tmp_path / "foreign.json"
        path.write_bytes(content)
        with pytest.raises(ConfigError, match="is not a version 3 key file"):
            keystore.load(path, "p")


@pytest.mark.parametrize(
    "change",
    [
        {"kdf": "argon2"},
        {"kdfparams": {"n": 1 << 40, "r": 8, "p": 1, "dklen": 32, "salt": "00"}},
        {"kdfparams": {"n": True, "r": 8, "p": 1, "dklen": 32, "salt": "00"}},
        {"kdfparams": "x"},
        {"ciphertext": "zz"},
        {"mac": None},
        {"cipherparams": {}},
    ],
)
def test_a_damaged_key_file_is_an_error_not_a_crash(path: Path, change: dict[str, object]) -> None:
    document = json.loads(path.read_text())
    document["crypto"] |= change
    path.write_text(json.dumps(document))
    with pytest.raises((ConfigError, IntegrityError), match=r"k\.json"):
        keystore.load(path, "p")


@pytest.mark.parametrize("place", ["version", "crypto", "kdfparams", "n"])
def test_a_field_in_capitals_does_not_get_past_the_bounds(path: Path, place: str) -> None:
    document = json.loads(path.read_text())
    crypto = document["crypto"]
    parts = {"version": document, "crypto": document, "kdfparams": crypto, "n": crypto["kdfparams"]}
    parts[place][place.upper()] = 1 << 30 if place == "n" else parts[place][place]
    path.write_text(json.dumps(document))
    with pytest.raises(IntegrityError, match="has a field twice, in different capitals"):
        keystore.load(path, "p")


def test_an_address_that_is_not_the_keys_is_noticed(path: Path) -> None:
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"address": "00" * 20}))
    with pytest.raises(IntegrityError, match="another address"):
        keystore.load(path, "p")
    path.write_text(json.dumps(document | {"address": "0x12"}))
    with pytest.raises(IntegrityError, match="names no valid address"):
        keystore.address_of(path)


def test_key_files_of_other_wallets_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, password = tmp_path / "k.json", tmp_path / "password"
    account = keystore.create(path, keystore.create_password_file(password), work_factor=LIGHT)
    document = json.loads(path.read_text())
    for written in (by_foundry(document), by_ethers(document)):
        path.write_text(json.dumps(written))
        assert keystore.load(path, password.read_text().strip()).key == account.key
        assert keystore.open_key(path, password).address == account.address
    assert keystore.address_of(path) == account.address
    for data in (by_powershell(document), b"\xef\xbb\xbf" + json.dumps(document).encode()):
        path.write_bytes(data)
        assert keystore.load(path, password.read_text().strip()).key == account.key
    path.write_text(json.dumps(by_foundry(document)))
    with pytest.raises(ConfigError, match='names no address; add the field "address" to it; `cast wallet address'):
        keystore.address_of(path)


def test_password_files_are_private(tmp_path: Path) -> None:
    path = tmp_path / "password"
    password = keystore.create_password_file(path)
    assert len(password) == 64
    assert keystore.read_password(path) == keystore.create_password_file(path) == password
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="can be read by others; chmod 600"):
        keystore.read_password(path)
    path.chmod(0o600)
    for written in ("two words\n", "two words\r\n", "\ufefftwo words"):
        path.write_text(written)
        assert keystore.read_password(path) == "two words"
    for written in ("two words \n", "two words\n\n"):
        path.write_text(written)
        with pytest.raises(ConfigError, match="has white space at its end"):
            keystore.read_password(path)
    for content, what in ((b"", "is empty"), (b"\xff\xff", "not UTF-8"), (b"x" * 5000, "too long")):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=what):
            keystore.read_password(path)
    with pytest.raises(ConfigError, match="not a regular file"):
        keystore.read_password(tmp_path)
    with pytest.raises(ConfigError, match="cannot read the password file"):
        keystore.read_password(tmp_path / "none")


def test_without_a_terminal_nobody_is_asked_and_a_typed_password_is_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: False))
    with pytest.raises(ConfigError, match="no terminal"):
        keystore.read_password(None)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    answers = iter(["one", "two", "one", "one", ""])
    monkeypatch.setattr("getpass.getpass", lambda prompt: next(answers))
    with pytest.raises(ConfigError, match="differ"):
        keystore.read_password(None, confirm=True)
    assert keystore.read_password(None, confirm=True) == "one"
    with pytest.raises(ConfigError, match="empty"):
        keystore.read_password(None)
