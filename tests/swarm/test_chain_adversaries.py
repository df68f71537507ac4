"""What whoever has stake at stake tries, or runs into, where a real chain knows the swarm."""

import json
import logging
import shutil

import pytest

from protocol.swarm.envelope import open_envelope
from swarm import chain_access
from swarm.journal import STATUS
from tests.swarm.chain_world import STAKE, ChainWorld, home_of, run_rounds


def test_who_signs_a_round_twice_and_leaves_at_once_is_slashed(on_chain: ChainWorld) -> None:
    """Nobody reads its second envelope any more; its stake is there for the delay, and the two are a proof."""
    other = on_chain.world.account(1).address
    member = on_chain.member(0)
    on_chain.share(1, 0)
    run_rounds(member, 1)
    on_chain.of(1).leave(on_chain.swarm, other).send()
    on_chain.share(1, 0, (0, 1))
    run_rounds(member, 1)
    after = on_chain.of(1).member_of(on_chain.swarm, other)
    assert after.ejected
    assert after.stake == STAKE // 2
    assert member.inbox.state.records[other].true == 1, "it is convicted of the second one, not read"


def test_a_copy_of_a_home_signs_nothing_that_a_root_covers(
    on_chain: ChainWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a key's rounds that are gone from the exchange the chain still knows."""
    member = on_chain.member(0).membership
    backup = shutil.copytree(home_of(on_chain, 0), on_chain.world.root / "backup")
    for number in range(3):
        member.exchange.publish(on_chain.envelope(0, number))
    member.finish()
    assert on_chain.of(0).member_of(on_chain.swarm, on_chain.world.account(0).address).next_round == 3
    shutil.rmtree(on_chain.world.exchange / "envelopes")
    copied = on_chain.world.member(0, home=backup, chain=on_chain.settings(), temperature=0.98)
    with caplog.at_level(logging.INFO, "muster.swarm"):
        run_rounds(copied, 4)
    withheld = [one.args for one in caplog.records if "is not shared: a recorded root" in one.msg]
    assert withheld == [(0,), (1,), (2,)]
    found = [path.read_bytes() for path in on_chain.world.exchange.glob("envelopes/*/*.json")]
    assert all(open_envelope(one, on_chain.limits).round == 3 for one in found)


def test_restarts_record_no_sooner(on_chain: ChainWorld) -> None:
    """Else a process that dies after each round pays for a root of every round."""
    for number in (40, 41):
        on_chain.member(0).membership.exchange.publish(on_chain.envelope(0, number))
    on_chain.member(0).membership.after_round()
    address = on_chain.world.account(0).address
    assert on_chain.of(0).member_of(on_chain.swarm, address).next_round == 42
    again = on_chain.member(0).membership
    again.before_round()
    again.exchange.publish(on_chain.envelope(0, 50))
    again.after_round()
    assert on_chain.of(0).member_of(on_chain.swarm, address).next_round == 42
    assert again.status()["chain"]["unrecorded"] == 1
    assert again.status()["chain"]["recorded_until"] == 42


def test_without_gas_it_still_reads_the_chain(on_chain: ChainWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A root that cannot be paid for keeps no newcomer unread."""
    monkeypatch.setattr(chain_access, "_PAUSE_SECONDS", 3600.0)
    poor = on_chain.member(0)
    on_chain.deployed.chain.rpc("anvil_setBalance", on_chain.world.account(0).address, "0x0")
    for number in (40, 41):
        poor.membership.exchange.publish(on_chain.envelope(0, number))
    run_rounds(poor, 1)
    shown = json.loads((home_of(on_chain, 0) / STATUS).read_bytes())["chain"]
    assert shown["unrecorded"] >= 2
    assert shown["reachable"]
    on_chain.join(2)
    on_chain.share(2, 0)
    run_rounds(poor, 1)
    assert on_chain.world.account(2).address in poor.inbox.state.records
