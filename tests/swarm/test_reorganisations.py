"""A reorganisation that replaces the block after a member's joining gives it other problems, and everybody notices."""

import json
import logging
import time

import pytest

from swarm.registry import SwarmRegistry
from tests.swarm.chain_world import DELAY, STAKE, ChainWorld, home_of, run_rounds


def replace_blocks(made: ChainWorld, *names: int) -> None:
    """The last blocks are mined anew: these members join again, in other blocks."""
    chain = made.deployed.chain
    chain.mine(3)
    chain.rpc("anvil_setNextBlockTimestamp", made.as_governance.client.now() + 100)
    chain.mine(1)
    for name in names:
        account = made.world.account(name)
        chain.fund(account.address)
        made.deployed.suite(made.deployed.governance).token.mint(account.address, STAKE).send()
        made.of(name).join(made.swarm, STAKE, account.address).send()
    chain.mine(4)


def registry_of(made: ChainWorld, name: int) -> SwarmRegistry:
    registry = made.member(name).membership.registry  # type: ignore[attr-defined]
    assert isinstance(registry, SwarmRegistry)
    return registry


def test_all_derive_a_members_problems_anew(on_chain: ChainWorld) -> None:
    other = on_chain.world.account(2).address
    before = on_chain.deployed.chain.rpc("evm_snapshot")
    on_chain.join(2)
    # so that nothing but another envelope has it look again
    member = on_chain.member(0, refresh_seconds=3600)
    stale = member.membership.start_of(other)
    assert stale == on_chain.start_of(on_chain.world.account(2))
    on_chain.share(2, 0)
    run_rounds(member, 1)
    assert member.inbox.state.records[other].true == 1

    on_chain.deployed.chain.rpc("evm_revert", before)
    time.sleep(0.02)
    replace_blocks(on_chain, 2)
    assert on_chain.start_of(on_chain.world.account(2)) != stale
    on_chain.share(2, 1)
    run_rounds(member, 1)
    record = member.inbox.state.records[other]
    assert (record.true, record.breaches) == (2, 0)
    assert member.membership.start_of(other) == on_chain.start_of(on_chain.world.account(2))
    kept = json.loads((home_of(on_chain, 0) / "members.json").read_bytes())
    assert bytes.fromhex(kept[other]["start"]) == member.membership.start_of(other), "on disk, too"


def test_who_never_joined_after_all_is_unknown_again(on_chain: ChainWorld) -> None:
    other = on_chain.world.account(2).address
    before = on_chain.deployed.chain.rpc("evm_snapshot")
    on_chain.join(2)
    registry = registry_of(on_chain, 0)
    assert registry.is_member(other)
    on_chain.deployed.chain.rpc("evm_revert", before)
    on_chain.deployed.chain.mine(8)
    registry.refresh(on_chain.world.account(0).address)
    assert other not in registry.members


def test_a_member_goes_on_with_the_problems_that_it_has_now(on_chain: ChainWorld) -> None:
    """What waited to be sent is about others' problems, as everybody would say, and is not sent."""
    before = on_chain.deployed.chain.rpc("evm_snapshot")
    on_chain.join(2)
    member = on_chain.member(2)
    stale = member.membership.own_start()
    (home_of(on_chain, 2) / "outbox" / "0000000000.json").write_bytes(on_chain.envelope(2, 0))
    on_chain.deployed.chain.rpc("evm_revert", before)
    time.sleep(0.02)
    replace_blocks(on_chain, 2)
    run_rounds(member, 2)
    assert member.membership.own_start() == on_chain.start_of(on_chain.world.account(2)) != stale
    reader = on_chain.member(0)
    run_rounds(reader, 1)
    record = reader.inbox.state.records.get(on_chain.world.account(2).address)
    assert record is None or record.breaches == 0


def test_a_proof_that_a_reorganisation_undoes_is_sent_again(on_chain: ChainWorld) -> None:
    """The cheat has all of its stake again, and the two envelopes do not come again."""
    chain, other = on_chain.deployed.chain, on_chain.world.account(1).address
    member = on_chain.member(0)
    on_chain.share(1, 0)
    run_rounds(member, 1)
    chain.mine(3)
    before = chain.rpc("evm_snapshot")
    on_chain.share(1, 0, (0, 1))
    run_rounds(member, 1)
    assert on_chain.of(1).member_of(on_chain.swarm, other).ejected
    chain.rpc("evm_revert", before)
    chain.mine(8)
    time.sleep(0.02)
    assert not on_chain.of(1).member_of(on_chain.swarm, other).ejected
    run_rounds(on_chain.member(0), 1)
    after = on_chain.of(1).member_of(on_chain.swarm, other)
    assert after.ejected
    assert after.stake == STAKE // 2


def test_who_has_no_stake_left_is_not_accused_again(on_chain: ChainWorld) -> None:
    other, registry = on_chain.world.account(1).address, registry_of(on_chain, 0)
    registry.look([other])
    assert registry.may_lose(other)
    on_chain.of(1).leave(on_chain.swarm, other).send()
    on_chain.deployed.chain.rpc("evm_increaseTime", DELAY + 1)
    on_chain.of(1).withdraw(on_chain.swarm, other).send()
    registry.look([other])
    assert not registry.may_lose(other)


def test_who_was_judged_is_asked_about_also_when_nothing_else_is_known_of_it(on_chain: ChainWorld) -> None:
    """As after a reorganisation that undid its joining, and in which it joined again."""
    own, other = (on_chain.world.account(name).address for name in (0, 1))
    registry = registry_of(on_chain, 0)
    assert other not in registry.members
    registry.refresh(own, [other])
    assert registry.may_lose(other)


def test_a_proof_is_not_sent_twice_without_one(on_chain: ChainWorld, caplog: pytest.LogCaptureFixture) -> None:
    member = on_chain.member(0)
    on_chain.share(1, 0)
    run_rounds(member, 1)
    on_chain.share(1, 0, (0, 1))
    with caplog.at_level(logging.WARNING, "muster.swarm"):
        run_rounds(member, 3)
    said = [one.getMessage() for one in caplog.records if one.name == "muster.swarm"]
    assert sum("is ejected" in one for one in said) >= 1
    assert not [one for one in said if "sent again" in one or "is refused" in one]
    assert member.membership.status()["chain"]["proofs"] == 0
