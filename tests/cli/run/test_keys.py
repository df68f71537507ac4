"""`muster keys`: nothing secret on a command line, nothing lost, nothing overwritten."""

import stat
from pathlib import Path

import pytest

from protocol.seeds import length_tier
from runtime import keystore
from tests.cli.muster import Muster, make_key

KEY = "4c0883a69102937d6231471b5dbb6204fe5129617082792ae468d01a3f362318"
ADDRESS = "0x2c7536E3605D9C16a7a3D7b1898e529396a65c23"


@pytest.fixture
def muster(tmp_path: Path) -> Muster:
    return Muster(tmp_path)


def password_file(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text + "\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def password(tmp_path: Path) -> Path:
    return password_file(tmp_path, "p", "correct horse")


def test_a_created_key_opens_and_its_file_is_private(muster: Muster, tmp_path: Path, password: Path) -> None:
    path = tmp_path / "new" / "key.json"
    made = muster.ok("keys", "create", "--keystore", path, "--password-file", password, "--json").json
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert keystore.load(path, "correct horse").address == made["address"]
    assert muster.ok("keys", "show", "--keystore", path).out.strip() == made["address"]
    again = muster.refused("keys", "create", "--keystore", path, "--password-file", password)
    assert "already holds a key" in again
    assert keystore.address_of(path) == made["address"]


def test_a_key_can_be_made_for_a_class_of_nodes(muster: Muster, tmp_path: Path, password: Path) -> None:
    for number in (1, 2, 3):
        path = tmp_path / f"node-{number}.json"
        options = ("--keystore", path, "--password-file", password, "--length-tier", f"{number}/3", "--json")
        made = muster.ok("keys", "create", *options).json
        assert length_tier(made["address"], 3) == number - 1
        assert keystore.load(path, "correct horse").address == made["address"]


@pytest.mark.parametrize("typed", ["0/3", "4/3", "3", "1/17", "a/b", "1/3/5"])
def test_what_is_no_class_makes_no_key(muster: Muster, tmp_path: Path, typed: str) -> None:
    path = tmp_path / "key.json"
    said = muster.refused("keys", "create", "--keystore", path, "--length-tier", typed)
    assert f"`{typed}` is not a length tier" in said
    assert not path.exists()


def test_an_imported_key_comes_from_a_pipe_never_from_arguments(muster: Muster, tmp_path: Path, password: Path) -> None:
    path = tmp_path / "key.json"
    order = ("keys", "create", "--password-file", password, "--keystore", path, "--import")
    assert muster.run(*order, KEY).code == 2
    made = muster.ok(*order, "--json", stdin=f"0x{KEY}\n")
    assert made.json["address"] == ADDRESS
    assert KEY not in path.read_text() + made.out + made.err


@pytest.mark.parametrize("typed", ["", "12", "zz" * 32, "0" * 64, "f" * 64, KEY + "00"])
def test_what_is_no_key_is_not_stored(muster: Muster, tmp_path: Path, password: Path, typed: str) -> None:
    path = tmp_path / "key.json"
    order = ("keys", "create", "--import", "--keystore", path, "--password-file", password)
    said = muster.refused(*order, stdin=typed + "\n")
    assert "not a private key" in said
    assert typed == "" or typed not in said
    assert not path.exists()


def test_a_changed_password_keeps_the_key(muster: Muster, tmp_path: Path) -> None:
    key = make_key(tmp_path, "key")
    new = password_file(tmp_path, "new", "new password")
    muster.ok("keys", "change-password", *key.options, "--new-password-file", new)
    assert keystore.load(key.path, "new password").address == key.address
    assert sorted(p.name for p in tmp_path.iterdir() if "key.json" in p.name) == ["key.json"]


def test_a_wrong_password_changes_nothing(muster: Muster, tmp_path: Path) -> None:
    key = make_key(tmp_path, "key")
    before = key.path.read_bytes()
    wrong, new = password_file(tmp_path, "wrong", "guess"), password_file(tmp_path, "new", "new password")
    order = ("keys", "change-password", "--keystore", key.path, "--password-file", wrong, "--new-password-file", new)
    assert "wrong password" in muster.refused(*order)
    assert key.path.read_bytes() == before


def test_key_file_and_password_must_be_there_or_asked_for(muster: Muster, tmp_path: Path) -> None:
    assert "password file" in muster.refused("keys", "create", "--keystore", tmp_path / "k.json")
    assert "--keystore" in muster.refused("keys", "show")
