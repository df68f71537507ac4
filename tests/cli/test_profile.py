"""What commands take from a profile, how a person names a pool, and how an owner's profile is written."""

import re
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from cli.main import app
from cli.options import PoolRef
from cli.pool.commands import _remember
from cli.profile import (
    Profile,
    ProfileKey,
    command_defaults,
    load_profile,
    name_pool,
    option_values,
    profile_defaults,
    profile_text,
)
from cli.run.process import listening
from protocol.errors import ConfigError
from runtime.keystore import address_of
from tests.cli.muster import Muster


@pytest.mark.parametrize(
    ("text", "number", "url"),
    [
        ("3", 3, None),
        ("https://Pool.example/", None, "https://pool.example"),
        ("3@https://pool.example", 3, "https://pool.example"),
    ],
)
def test_a_pool_is_named_by_number_url_or_both(text: str, number: int | None, url: str | None) -> None:
    ref = PoolRef.parse(text)
    assert (ref.number, ref.url) == (number, url)
    assert PoolRef.parse(str(ref)) == ref


@pytest.mark.parametrize("text", ["", "0", "-1", "3@", "pool.example", "ftp://pool.example", "4294967296"])
def test_what_names_no_pool_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        PoolRef.parse(text)


def test_a_password_in_a_pools_url_is_not_repeated() -> None:
    with pytest.raises(ConfigError, match="must not carry a password") as refused:
        PoolRef.parse("http://u:secret@pool.example")
    assert "secret" not in str(refused.value)


def owner(tmp_path: Path, **changes: Any) -> Profile:
    fields: dict[str, Any] = {
        "role": "owner",
        "home": tmp_path,
        "cache": tmp_path,
        "key": ProfileKey(keystore=tmp_path / "key.json"),
        "service": "https://pool.example",
    }
    return Profile(**fields | changes)


def test_a_second_pool_does_not_take_over_the_service_of_the_first(tmp_path: Path) -> None:
    create = get_command(app).commands["pool"].commands["create"]  # type: ignore[attr-defined]
    service = {"url": "https://pool.example", "service_key": "0x" + "1" * 40}
    assert service.keys() <= command_defaults(create, option_values(owner(tmp_path)) | service).keys()
    second = option_values(owner(tmp_path, pool=1)) | service
    assert not service.keys() & command_defaults(create, second).keys()


def test_another_roles_profile_names_the_contracts_and_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "operator.toml"
    path.write_text(profile_text("operator", deployment=tmp_path / "deployment.json", home=tmp_path, cache=tmp_path))
    monkeypatch.setattr("cli.profile.profile_path", lambda role: tmp_path / f"{role}.toml")
    for words, given in ((["pool", "status"], {"deployment"}), (["node", "claim"], {"deployment", "keystore"})):
        monkeypatch.setattr("sys.argv", ["muster", *words])
        noun, verb = words
        assert profile_defaults(app)[noun][verb].keys() & {"deployment", "keystore"} == given


def test_a_seat_judges_the_profiles_pool_unless_a_group_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = get_command(app).commands["validator"].commands["judge"]  # type: ignore[attr-defined]
    values = option_values(owner(tmp_path, pool=1))
    for words, named in ((["--stop"], True), (["--group", "qwen"], False), (["--group=qwen"], False)):
        monkeypatch.setattr("sys.argv", ["muster", "validator", "judge", *words])
        found = command_defaults(judge, values)
        assert ("pool" in found) is named
        assert not named or found["pool"]() == ["1@https://pool.example"]


def test_a_service_url_that_is_none_leaves_the_pools_number(tmp_path: Path) -> None:
    assert option_values(owner(tmp_path, pool=1, service="http://u:p@pool.example"))["pool"] == "1"
    assert re.fullmatch("1@https://pool.example", option_values(owner(tmp_path, pool=1))["pool"])


@pytest.mark.parametrize(
    ("url", "port"),
    [("http://127.0.0.1:8123", {"port": 8123}), ("https://pool.example:8443", {}), ("http://pool.example", {})],
)
def test_a_service_without_a_proxy_listens_where_its_url_says(url: str, port: dict[str, int]) -> None:
    assert listening(url) == port


OWNER = ("--deployment", "d.json", "--url", "https://pool.example", "--s3", "s3.json", "--pool-config", "p.toml")


def test_an_owner_names_everything_once(tmp_path: Path) -> None:
    muster = Muster(tmp_path)
    made = muster.ok("init", "owner", *OWNER, "--json").json
    path = Path(made["profile"])
    profile = load_profile(path)
    here = Path.cwd()
    assert (profile.deployment, profile.s3, profile.pool_config) == (here / "d.json", here / "s3.json", here / "p.toml")
    assert (profile.service, profile.pool) == ("https://pool.example", None)
    assert profile.service_key is not None
    keys = {"owner": profile.key, "service": profile.service_key}
    assert made["keys"] == {name: address_of(key.keystore) for name, key in keys.items()}
    for key in keys.values():
        assert key.password_file is not None
        assert key.keystore.stat().st_mode & 0o077 == key.password_file.stat().st_mode & 0o077 == 0

    again = muster.ok("init", "owner", "--force", "--json").json
    assert again["keys"] == made["keys"], "keys are never made anew"
    assert load_profile(path).deployment == path.parent / "deployment.json"

    name_pool(path, 7)
    assert load_profile(path).pool == 7
    assert "# Number of the pool" in path.read_text(), "comments stay"


def test_an_owners_options_are_no_other_roles(tmp_path: Path) -> None:
    said = Muster(tmp_path).refused("init", "operator", "--pool", "http://127.0.0.1:1", "--s3", "s3.json")
    assert "are an owner's" in said


def test_a_second_pool_under_one_profile_has_to_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "owner.toml"
    path.write_text(profile_text("owner", pool=1, deployment=tmp_path / "d.json", home=tmp_path, cache=tmp_path))
    monkeypatch.setattr("cli.profile.profile_path", lambda role: path)
    assert _remember(2).startswith("the profile stays pool 1's: commands about this one need --pool 2")
    assert load_profile(path).pool == 1
    assert _remember(1) == ""
