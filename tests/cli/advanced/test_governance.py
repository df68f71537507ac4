"""Governance by commands alone, on a real chain: propose, wait, execute; a guardian's pause."""

from pathlib import Path

import pytest

from chain.deployment import NetworkConfig
from tests.cli.muster import Key, Muster, make_key
from tests.conftest import TOKEN, Chain

DELAY = NetworkConfig.load("local").suite.timelock_delay


@pytest.fixture
def keys(chain: Chain, tmp_path: Path) -> dict[str, Key]:
    made = {name: make_key(tmp_path, name) for name in ("deployer", "governor", "guardian")}
    for key in made.values():
        chain.fund(key.address)
    return made


@pytest.fixture
def muster(chain: Chain, keys: dict[str, Key], tmp_path: Path) -> Muster:
    """On a deployment with a governor and a guardian, who are not the deployer."""
    command, out = Muster(tmp_path, rpc=chain.url), tmp_path / "deployment"
    who = ("--governance", keys["governor"].address, "--guardian", keys["guardian"].address)
    command.ok("deploy", *keys["deployer"].options, *who, "--out", out, "--yes")
    command.deployment = out
    return command


def test_a_change_is_proposed_listed_and_executed(chain: Chain, muster: Muster, keys: dict[str, Key]) -> None:
    governor, deployer = keys["governor"].options, keys["deployer"].options
    change = ("governance", "propose", "--pause")
    assert "AccessControlUnauthorizedAccount" in muster.refused(*change, *deployer, "--yes")
    assert "one change is proposed at a time" in muster.refused(*change, "--resume", *governor, "--yes")
    proposed = muster.ok(*change, *governor, "--yes", "--json").json
    assert "the proposal cannot be executed before" in muster.refused("governance", "execute", *governor, "--yes")
    (listed,) = muster.ok("governance", "status", "--json").json["proposals"]
    assert (listed["id"], listed["status"]) == (proposed["id"], "scheduled")
    assert listed["ready_at"] == proposed["ready_at"]
    assert listed["calls"] == ["Params.setPaused(paused_=True)"]
    chain.later(DELAY)
    assert "ready" in muster.ok("governance", "status").out
    assert "AccessControlUnauthorizedAccount" in muster.refused("governance", "execute", *deployer, "--yes")
    muster.ok("governance", "execute", "--id", proposed["id"][:10], *governor, "--yes")
    view = muster.ok("governance", "status", "--json").json
    assert view["paused_until"]
    assert view["values"]["slashBps"] == 10_000
    assert "100%" in muster.ok("governance", "status").out
    assert "no scheduled proposals" in muster.refused("governance", "execute", *governor, "--yes")


def test_a_guardian_pauses_at_once_governance_by_proposal_and_who_owns_the_token_mints(
    chain: Chain, muster: Muster, keys: dict[str, Key]
) -> None:
    governor, guardian = keys["governor"].options, keys["guardian"].options
    muster.ok("governance", "propose", "--pause", *guardian, "--yes")
    assert muster.ok("pool", "list", "--json").json["paused"] is True
    assert "AccessControlUnauthorizedAccount" in muster.refused("governance", "propose", "--resume", *guardian, "--yes")
    resume = muster.ok("governance", "propose", "--resume", *governor, "--yes", "--json").json
    again = muster.ok("governance", "propose", "--pause", *governor, "--yes", "--json").json
    assert "2 scheduled proposals; see" in muster.refused("governance", "execute", "--cancel", *governor, "--yes")
    muster.ok("governance", "execute", "--cancel", "--id", again["id"], *governor, "--yes")
    chain.later(DELAY)
    muster.ok("governance", "execute", *governor, "--yes")
    assert muster.ok("pool", "list", "--json").json["paused"] is False
    statuses = {p["id"]: p["status"] for p in muster.ok("governance", "status", "--json").json["proposals"]}
    assert statuses == {resume["id"]: "done", again["id"]: "cancelled"}
    chain.later(7 * 86400)  # a guardian's pauses are that far apart
    muster.ok("governance", "propose", "--pause", *guardian, "--yes")
    assert "paused until" in muster.ok("governance", "status").out
    chain.later(7 * 86400)
    assert muster.ok("pool", "list", "--json").json["paused"] is False
    assert "paused until" not in muster.ok("governance", "status").out, "it ends by itself"
    mint = ("governance", "propose", "--mint", f"{keys['guardian'].address}=12.5")
    assert "OwnableUnauthorizedAccount" in muster.refused(*mint, *guardian, "--yes")
    muster.ok(*mint, *governor, "--yes")
    held = muster.ok("keys", "show", "--address", keys["guardian"].address, "--json").json
    assert held["base_units"] == 25 * TOKEN // 2
