"""`muster upgrade`: which version it takes for wanted whatever a service says, and what it goes back to."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import cli.session
from cli import upgrade
from protocol import VERSION
from protocol.accounts import Account, LocalAccount
from protocol.api.releases import Release, Releases
from protocol.errors import ConfigError, IntegrityError, MusterError
from protocol.identity import PoolId

OWNER, RIVAL = Account.create(), Account.create()
URL, POOLS = "http://service", "0x" + "11" * 20
NEWER, NEWEST = "90.1.0", "90.2.0"


class Told:
    """A service of pool 1 that shows what it likes; the chain knows pool 2 besides, of somebody else."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pool, self.step = 1, 0
        self.releases = self.signed(OWNER, (0, NEWER))
        pools = {1: SimpleNamespace(owner=OWNER.address), 2: SimpleNamespace(owner=RIVAL.address)}
        client = SimpleNamespace(chain_id=1, close=lambda: None)
        suite = SimpleNamespace(pools=SimpleNamespace(address=POOLS))

        def state() -> Any:
            for pool in pools.values():
                pool.step = 5
            return SimpleNamespace(pools=pools)

        def ask(url: str, endpoint: Any) -> Any:
            return self.releases if "releases" in endpoint.path else SimpleNamespace(step=self.step)

        session = SimpleNamespace(client=client, suite=suite, state=state)
        profile = SimpleNamespace(service=URL, rpc=None, deployment=None, pool=1)
        monkeypatch.setattr(upgrade, "find_profile", lambda role: profile)
        monkeypatch.setattr(cli.session, "ask_service", ask)
        monkeypatch.setattr(cli.session, "ask_access", lambda url, rpc: SimpleNamespace(url=url, pool=self.pool))
        monkeypatch.setattr(cli.session, "check_access", lambda access, state: None)
        monkeypatch.setattr(cli.session, "open_session", lambda deployment, rpc: session)

    def signed(self, owner: LocalAccount, *named: tuple[int, str], pool: int = 1) -> Releases:
        releases = [Release(from_step=step, versions=[version]) for step, version in named]
        return Releases.signed(owner, PoolId(1, POOLS, pool), releases)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    return Told(monkeypatch)


def test_the_owners_version_is_wanted_whatever_step_the_service_names(told: Told) -> None:
    assert upgrade.wanted(None) == NEWER
    told.releases = told.signed(OWNER, (0, NEWER), (4, NEWEST))
    assert upgrade.wanted(None) == NEWEST


def test_another_pools_owner_says_nothing_to_this_pools_nodes(told: Told) -> None:
    told.pool, told.releases = 2, told.signed(RIVAL, (0, NEWER), pool=2)
    with pytest.raises(IntegrityError, match="speaks of pool 2"):
        upgrade.wanted(None)


@pytest.mark.parametrize("version", ["0.0.1", "x"])
def test_what_the_owner_signed_long_ago_takes_nobody_back(told: Told, version: str) -> None:
    told.releases = told.signed(OWNER, (0, version))
    with pytest.raises(ConfigError, match=r"older than this|no version of muster"):
        upgrade.wanted(None)


def test_a_copy_that_was_not_finished_is_nothing_to_go_back_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, tried = tmp_path / "venv", list[Path]()
    (here / "bin").mkdir(parents=True)
    (here / "bin" / "python").symlink_to(sys.executable)

    def fail(*args: Any, **named: Any) -> Any:
        return SimpleNamespace(returncode=1, stderr="no such version", stdout="")

    def try_out(there: Path) -> str:
        tried.append(there)
        return NEWER

    monkeypatch.setattr(subprocess, "run", fail)
    monkeypatch.setattr(upgrade, "try_out", try_out)
    with pytest.raises(MusterError, match="no such version"):
        upgrade.install(here, NEWER, None)
    with pytest.raises(ConfigError, match="no version to go back to"):
        upgrade._change(here, None, None, None, back=True, yes=True)
    assert not tried


def test_what_does_not_start_in_its_place_is_nothing_to_go_back_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "venv", tmp_path / "venv.next"
    for folder, version in ((here, VERSION), (there, NEWER)):
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "python").symlink_to(sys.executable)
        (folder / "version").write_text(version)

    def try_out(there: Path) -> str:
        raise MusterError(f"{(there / 'version').read_text()} does not start")

    monkeypatch.setattr(upgrade, "try_out", try_out)
    with pytest.raises(MusterError, match=f"{NEWER} does not start"):
        upgrade.switch(here, NEWER)
    assert (here / "version").read_text() == VERSION
    with pytest.raises(ConfigError, match="no version to go back to"):
        upgrade._change(here, None, None, None, back=True, yes=True)


def test_programs_of_a_long_path_start_the_python_beside_them(tmp_path: Path) -> None:
    """Their first line names a shell, since the system takes no long paths and none with spaces there."""
    here, there = tmp_path / "my venv", tmp_path / "my venv.next"
    (there / "bin").mkdir(parents=True)
    program = there / "bin" / "muster"
    program.write_text(f"#!/bin/sh\n'''exec' \"{there}/bin/python\" \"$0\" \"$@\"\n' '''\nprint('{VERSION}')\n")
    program.chmod(0o755)
    upgrade._name_python(there, here)
    assert f'"{here}/bin/python"' in program.read_text()
    assert ".next" not in program.read_text()


def test_a_version_that_takes_too_long_to_start_is_told_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\nexec sleep 30\n")
    python.chmod(0o755)
    monkeypatch.setattr(upgrade, "_TRIAL_SECONDS", 0.3)
    with pytest.raises(MusterError, match=r"trying the new version took more than 0 s"):
        upgrade.try_out(tmp_path)
