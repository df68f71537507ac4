"""Members of a swarm that a real chain knows: who is read, what is recorded, who is slashed; and no waiting for it."""

import json
import time

import pytest

from chain.indexer.logs import decode_logs
from protocol.errors import ConfigError
from protocol.swarm.envelope import open_envelope
from protocol.swarm.roots import SharedRound, is_under, round_proof
from protocol.swarm.seeds import NO_START
from storage.keys import parse_key
from swarm import chain_access
from swarm.journal import STATUS
from swarm.listing import ListingEntry
from tests.chain.proxy import Proxy
from tests.swarm.chain_world import STAKE, ChainWorld, home_of, run_rounds


def records(made: ChainWorld, home: int) -> dict[str, dict[str, int]]:
    """What it found: how much of that it trained on is the draw's matter."""
    shown: dict[str, dict[str, int]] = json.loads((home_of(made, home) / STATUS).read_bytes())["sharers"]
    return {sharer: {name: of[name] for name in ("true", "breaches", "unfit")} for sharer, of in shown.items()}


def test_two_members_share_a_root_is_recorded_and_the_equivocator_is_slashed(on_chain: ChainWorld) -> None:
    one, other = (on_chain.world.account(name) for name in (0, 1))
    member = on_chain.member(0)
    for number in range(3):
        on_chain.share(1, number, (0, 1))
    run_rounds(member, 1)
    assert records(on_chain, 0) == {other.address: {"true": 6, "breaches": 0, "unfit": 0}}

    # what it shares itself is recorded, two envelopes at once
    first, last = on_chain.envelope(0, 40, (0, 1, 2)), on_chain.envelope(0, 41)
    member.membership.exchange.publish(first)
    assert on_chain.of(0).member_of(on_chain.swarm, one.address).next_round < 40
    member.membership.exchange.publish(last)
    run_rounds(member, 1)
    assert on_chain.of(0).member_of(on_chain.swarm, one.address).next_round == 42
    assert (home_of(on_chain, 0) / "shared.jsonl").is_file()

    # the other one signs round 2 again
    on_chain.share(1, 2, (0, 1, 2))
    before = on_chain.deployed.suite().token.balance_of(one.address)
    run_rounds(member, 1)
    after = on_chain.of(1).member_of(on_chain.swarm, other.address)
    assert after.ejected
    assert after.stake == STAKE // 2
    assert on_chain.deployed.suite().token.balance_of(one.address) - before == STAKE // 20
    assert [path.suffix for path in (home_of(on_chain, 0) / "proofs").iterdir()] == [".judged"]

    # and is read no more, by a newcomer either
    on_chain.share(1, 9)
    run_rounds(member, 1)
    assert records(on_chain, 0)[other.address]["true"] == 6
    on_chain.join(2)
    newcomer = on_chain.member(2)
    run_rounds(newcomer, 1)
    assert other.address not in records(on_chain, 2)
    assert one.address in records(on_chain, 2)
    shown = json.loads((home_of(on_chain, 2) / STATUS).read_bytes())["chain"]
    assert shown["members"] == 2
    assert shown["ejected"] == [other.address]
    assert shown["standing"] == "member"


def test_anybody_can_check_what_a_recorded_root_covers(on_chain: ChainWorld) -> None:
    member = on_chain.member(0)
    keys = [member.membership.exchange.publish(on_chain.envelope(0, number)) for number in (3, 5, 6)]
    member.membership.finish()
    swarms = on_chain.of(0)
    raw = on_chain.deployed.chain.rpc("eth_getLogs", {"fromBlock": "0x0", "address": swarms.address})
    (event,) = [one for one in decode_logs(raw, on_chain.deployed.deployment) if one.name == "RootRecorded"]
    assert (event.args["first"], event.args["last"], event.args["groups"]) == (3, 6, 3)
    sharer = on_chain.world.account(0).address.lower()
    stored = [on_chain.exchange.get(ListingEntry(key, sharer), 1 << 20) for key in keys]
    found = [open_envelope(one, on_chain.limits) for one in stored]
    shared = [
        SharedRound(one.round, one.root, parse_key(key).digest, len(one.groups))
        for one, key in zip(found, keys, strict=True)
    ]
    for one in shared:
        assert is_under(one, round_proof(shared, one.round), event.args["root"])
    other = on_chain.envelope(0, 5, (0, 1))
    forged = SharedRound(5, open_envelope(other, on_chain.limits).root, shared[1].sha256, 1)
    assert not is_under(forged, round_proof(shared, 5), event.args["root"])


def test_problems_follow_from_a_block_after_joining(on_chain: ChainWorld) -> None:
    """An envelope about the problems that the key alone would have is one about other problems."""
    member = on_chain.member(0)
    on_chain.exchange.publish(on_chain.envelope(1, 0, start=NO_START))
    run_rounds(member, 1)
    assert records(on_chain, 0)[on_chain.world.account(1).address]["breaches"] == 1
    assert member.membership.own_start() != NO_START
    assert member.membership.own_start() == on_chain.start_of(on_chain.world.account(0))


def test_who_joined_just_now_is_read_later_and_a_stranger_never(on_chain: ChainWorld) -> None:
    """A block may still be replaced: an envelope that comes too early is looked at again."""
    newcomer, stranger = (on_chain.world.account(name) for name in (2, 3))
    on_chain.deployed.chain.mine(50)
    member = on_chain.member(0, confirmations=50)
    on_chain.join(2, blocks=2)
    on_chain.exchange.publish(on_chain.envelope(2, 0))
    on_chain.exchange.publish(on_chain.envelope(3, 0, start=NO_START))
    run_rounds(member, 1)
    assert records(on_chain, 0) == {}
    on_chain.deployed.chain.mine(50)
    run_rounds(member, 1)
    assert records(on_chain, 0) == {newcomer.address: {"true": 1, "breaches": 0, "unfit": 0}}
    assert stranger.address not in member.membership.registry.members  # type: ignore[attr-defined]


def test_removing_the_first_envelope_does_not_help(on_chain: ChainWorld) -> None:
    """Who may write to the bucket takes back what it shared, and signs the round anew: the receiver has kept it."""
    member = on_chain.member(0)
    first = on_chain.share(1, 0)
    run_rounds(member, 1)
    sharer = on_chain.world.account(1).address.lower()
    (on_chain.world.exchange / ListingEntry(first, sharer).place).unlink()
    on_chain.share(1, 0, (0, 1))
    run_rounds(member, 1)
    assert on_chain.of(1).member_of(on_chain.swarm, on_chain.world.account(1).address).ejected


def test_a_leave_that_a_reorganisation_undoes_is_undone_here(on_chain: ChainWorld) -> None:
    chain, other = on_chain.deployed.chain, on_chain.world.account(1)
    member = on_chain.member(0)
    member.membership.is_member(other.address)
    before = chain.rpc("evm_snapshot")
    on_chain.of(1).leave(on_chain.swarm, other.address).send()
    time.sleep(0.02)
    member.membership.before_round()
    assert not member.membership.is_member(other.address)
    chain.rpc("evm_revert", before)
    time.sleep(0.02)
    member.membership.before_round()
    assert member.membership.is_member(other.address)


def test_who_left_is_read_no_more(on_chain: ChainWorld) -> None:
    other = on_chain.world.account(1)
    on_chain.of(1).leave(on_chain.swarm, other.address).send()
    on_chain.share(1, 0)
    run_rounds(on_chain.member(0), 1)
    assert records(on_chain, 0) == {}


def test_without_the_chain_it_goes_on_and_makes_up_for_it(
    on_chain: ChainWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds go on, what is known of members holds over a restart, roots and proofs wait until it is back."""
    monkeypatch.setattr(chain_access, "_PAUSE_SECONDS", 0.1)
    other = on_chain.world.account(1)
    proxy = Proxy(on_chain.deployed.chain.url)
    on_chain.share(1, 0)
    run_rounds(on_chain.member(0, rpc=[proxy.url]), 1)
    proxy.down = True
    again = on_chain.member(0, rpc=[proxy.url])
    for number in (7, 8):
        again.membership.exchange.publish(on_chain.envelope(0, number))
    on_chain.share(1, 0, (0, 1))
    on_chain.share(1, 1)
    run_rounds(again, 2)
    shown = json.loads((home_of(on_chain, 0) / STATUS).read_bytes())
    assert shown["round"] == 2
    assert not shown["alone"]
    assert not shown["chain"]["reachable"]
    assert shown["chain"]["proofs"] == 1
    assert records(on_chain, 0)[other.address] == {"true": 2, "breaches": 1, "unfit": 0}
    proxy.down = False
    run_rounds(on_chain.member(0, rpc=[proxy.url]), 1)
    proxy.close()
    assert on_chain.of(1).member_of(on_chain.swarm, other.address).ejected
    assert on_chain.of(0).member_of(on_chain.swarm, on_chain.world.account(0).address).next_round >= 9


def test_a_transaction_that_counts_as_lost_is_not_sent_twice(
    on_chain: ChainWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to a root's transaction is lost: the next attempt sees that it was mined."""
    monkeypatch.setattr(chain_access, "_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(chain_access, "_SEND_SECONDS", 0.5)
    chain = on_chain.deployed.chain
    member = on_chain.member(0)
    for number in (3, 4):
        member.membership.exchange.publish(on_chain.envelope(0, number))
    chain.rpc("evm_setAutomine", False)
    member.membership.after_round()
    assert member.membership.status()["chain"]["unrecorded"] == 2
    chain.rpc("evm_setAutomine", True)
    chain.mine()
    member.membership.after_round()
    assert member.membership.status()["chain"]["unrecorded"] == 0
    raw = chain.rpc("eth_getLogs", {"fromBlock": "0x0", "address": on_chain.of(0).address})
    events = [one for one in decode_logs(raw, on_chain.deployed.deployment) if one.name == "RootRecorded"]
    assert len(events) == 1


def test_a_key_without_stake_is_refused_at_once(on_chain: ChainWorld) -> None:
    with pytest.raises(ConfigError, match="is no member of swarm 1"):
        on_chain.member(3)


def test_another_document_is_refused(on_chain: ChainWorld) -> None:
    other = on_chain.as_governance.open(b"\x01" * 32, STAKE, 60).send()
    with pytest.raises(ConfigError, match="has the document 0101"):
        on_chain.member(0, swarm=other)
