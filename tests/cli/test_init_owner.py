"""An owner's profile: everything is named once, keys are made, the pool's number is written in when there is one."""

from pathlib import Path

from cli.profile import load_profile, name_pool
from runtime.keystore import address_of
from tests.cli.muster import Muster

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
    assert "# The pool's number" in path.read_text(), "comments stay"


def test_an_owners_options_are_no_other_roles(tmp_path: Path) -> None:
    said = Muster(tmp_path).refused("init", "operator", "--pool", "http://127.0.0.1:1", "--s3", "s3.json")
    assert "are an owner's" in said
