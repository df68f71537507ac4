"""Swarms on a real chain: what Python signs is what the contract checks, and nobody but a cheat loses stake."""

from pathlib import Path

import pytest

from chain.contracts.swarms import PAGE, MemberView, Swarms, SwarmView
from chain.errors import ContractError
from chain.follower import Follower
from protocol import eip712
from protocol.accounts import LocalAccount
from protocol.swarm.envelope import Envelope, EnvelopeLimits, SharedCompletion, SharedGroup, open_envelope, seal
from protocol.swarm.equivocation import Equivocation, equivocation
from protocol.swarm.identity import SwarmId
from tests.conftest import GRAINS, Deployed
from tests.protocol.swarm.samples import DOCUMENT

STAKE, DELAY = 40 * GRAINS, 3600
SINK = "0x000000000000000000000000000000000000dEaD"


def envelope(swarm: SwarmId, member: LocalAccount, number: int, text: str) -> bytes:
    """What a member shares of a round, whatever its problem is."""
    completions = [SharedCompletion(text=text + end, ended=True, reward=float(end == "a")) for end in "ab"]
    group = SharedGroup(slot=0, question="0" * 64, completions=completions)
    return seal(
        Envelope(
            chain_id=swarm.chain_id,
            swarms=swarm.swarms,
            swarm=swarm.swarm,
            document=DOCUMENT.digest.hex(),
            member=member.address,
            round=number,
            groups=[group],
        ),
        member,
    )


def opened(shared_suite: Deployed) -> int:
    """A new swarm of the sample document."""
    return shared_suite.suite(shared_suite.chain.account()).swarms.open(DOCUMENT.digest, STAKE, DELAY).send()


def joined(shared_suite: Deployed, swarm: int) -> tuple[LocalAccount, Swarms]:
    member = shared_suite.rich(STAKE)
    swarms = shared_suite.suite(member).swarms
    swarms.join(swarm, STAKE, member.address).send()
    return member, swarms


def proof_of(swarms: Swarms, swarm: int, member: LocalAccount) -> Equivocation:
    place = swarms.swarm_id(swarm)
    limits = EnvelopeLimits.of(place, DOCUMENT)
    return equivocation(envelope(place, member, 5, "one"), envelope(place, member, 5, "another"), limits)


def test_the_contract_hashes_what_members_sign(shared_suite: Deployed) -> None:
    swarm = opened(shared_suite)
    member = shared_suite.chain.account()
    swarms = shared_suite.suite(member).swarms
    place = swarms.swarm_id(swarm)
    data = envelope(place, member, 7, "text")
    opened_one = open_envelope(data, EnvelopeLimits.of(place, DOCUMENT))
    on_chain = swarms.read("envelopeDigest", swarm, member.address, 7, opened_one.root)
    assert on_chain == opened_one.signed_digest


def test_a_member_joins_with_its_own_key_or_with_its_consent(shared_suite: Deployed) -> None:
    swarm = opened(shared_suite)
    member, swarms = joined(shared_suite, swarm)
    owner, cold = shared_suite.rich(STAKE), shared_suite.chain.account()
    expiry = swarms.client.now() + 600
    consent = swarms.sign_consent(cold, swarm, owner.address, expiry)
    with pytest.raises(ContractError, match="WrongConsent"):
        shared_suite.suite(owner).swarms.join(swarm, STAKE, cold.address, expiry, bytes(65)).send()
    shared_suite.suite(owner).swarms.join(swarm, STAKE, cold.address, expiry, consent).send()
    views = swarms.members_of(swarm, [member.address, cold.address])
    assert [(one.member, one.owner, one.stake) for one in views] == [
        (member.address, member.address, STAKE),
        (cold.address, owner.address, STAKE),
    ]
    assert all(one.active for one in views)
    assert views[0] == swarms.member_of(swarm, member.address)
    nobody = swarms.member_of(swarm, shared_suite.governance.address)
    assert not nobody.active
    assert nobody.joined_block == 0
    assert swarms.members_of(swarm, []) == []
    assert swarms.swarm_of(swarm) == SwarmView(DOCUMENT.digest, STAKE, DELAY)


def test_two_envelopes_of_one_round_cost_half_the_stake(shared_suite: Deployed) -> None:
    swarm = opened(shared_suite)
    member, swarms = joined(shared_suite, swarm)
    prover = shared_suite.chain.account()
    as_prover = shared_suite.suite(prover)
    burnt = as_prover.token.balance_of(SINK)
    as_prover.swarms.accuse(proof_of(swarms, swarm, member)).send()
    after: MemberView = swarms.member_of(swarm, member.address)
    assert after.ejected
    assert not after.active
    assert after.stake == STAKE // 2
    assert as_prover.token.balance_of(prover.address) == STAKE // 20
    assert as_prover.token.balance_of(SINK) - burnt == STAKE // 2 - STAKE // 20
    with pytest.raises(ContractError, match="AlreadyEjected"):
        as_prover.swarms.accuse(proof_of(swarms, swarm, member)).send()
    with pytest.raises(ContractError, match="AlreadyLeft"):
        swarms.leave(swarm, member.address).send()


def test_nobody_innocent_is_slashed(shared_suite: Deployed) -> None:
    swarm = opened(shared_suite)
    member, swarms = joined(shared_suite, swarm)
    true = proof_of(swarms, swarm, member)
    (root_a, signed_a), (root_b, signed_b) = true.signed
    mirrored_s = eip712.HALF_ORDER * 2 + 1 - int.from_bytes(signed_b[32:64], "big")
    mirrored = signed_b[:32] + mirrored_s.to_bytes(32, "big") + bytes([55 - signed_b[64]])
    stranger = shared_suite.chain.account()
    other = opened(shared_suite)
    foreign = proof_of(swarms, other, member)
    lies = {
        "SameEnvelope": Equivocation(swarm, member.address, 5, ((root_a, signed_a), (root_a, signed_a))),
        "BadSignature": Equivocation(swarm, member.address, 5, ((root_a, signed_a), (root_b, signed_a))),
        "NoSuchMember": proof_of(swarms, swarm, stranger),
    }
    lies_more = [
        Equivocation(swarm, member.address, 6, true.signed),
        Equivocation(swarm, member.address, 5, ((root_a, signed_a), (root_b, mirrored))),
        Equivocation(swarm, member.address, 5, ((root_a, signed_a), foreign.signed[1])),
    ]
    for name, lie in [*lies.items(), *(("BadSignature", one) for one in lies_more)]:
        with pytest.raises(ContractError, match=name):
            shared_suite.suite(stranger).swarms.accuse(lie).send()
    assert swarms.member_of(swarm, member.address).stake == STAKE


def test_stake_comes_back_after_the_delay(deployed: Deployed) -> None:
    swarm = opened(deployed)
    member, swarms = joined(deployed, swarm)
    swarms.leave(swarm, member.address).send()
    with pytest.raises(ContractError, match="the stake is locked until"):
        swarms.withdraw(swarm, member.address).send()
    deployed.chain.later(DELAY + 1)
    assert swarms.withdraw(swarm, member.address).send() == STAKE
    with pytest.raises(ContractError, match="NothingAtStake"):
        swarms.accuse(proof_of(swarms, swarm, member)).send()
    with pytest.raises(ContractError, match="a key joins once"):
        swarms.join(swarm, STAKE, member.address).send()


def test_more_members_than_a_page_are_read_in_order(shared_suite: Deployed) -> None:
    swarm = opened(shared_suite)
    member, swarms = joined(shared_suite, swarm)
    asked = [f"0x{number:040x}" for number in range(1, PAGE + 4)]
    asked.insert(PAGE + 1, member.address)
    views = swarms.members_of(swarm, asked)
    assert [one.member for one in views] == [eip712.checked_address(address) for address in asked]
    assert [one.member for one in views if one.active] == [member.address]


def test_recorded_roots_are_events_that_no_pool_keeps(deployed: Deployed, tmp_path: Path) -> None:
    swarm = opened(deployed)
    member, swarms = joined(deployed, swarm)
    receipt = swarms.client.send(swarms.record(swarm, 0, 9, 80, b"\x07" * 32))
    event = swarms.event(receipt, "RootRecorded")
    assert event.args == {
        "swarm": swarm, "member": member.address, "first": 0, "last": 9, "groups": 80, "root": b"\x07" * 32,
    }  # fmt: skip
    assert swarms.member_of(swarm, member.address).next_round == 10
    with pytest.raises(ContractError, match="record from round 10 on"):
        swarms.record(swarm, 9, 12, 8, b"\x07" * 32).send()
    follower = Follower(swarms.client, deployed.deployment, tmp_path / "events.sqlite")
    events = follower.poll().events
    follower.close()
    assert "Params" in {one.contract for one in events}
    assert "Swarms" not in {one.contract for one in events}
