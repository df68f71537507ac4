"""Two envelopes of one round are a proof; everything else is refused, with what it lacks."""

import pytest

from protocol.errors import IntegrityError
from protocol.swarm.envelope import MalformedEnvelope, seal
from protocol.swarm.equivocation import equivocation
from protocol.swarm.identity import SwarmId
from tests.protocol.swarm.samples import KEYS, LIMITS, SWARM, honest_envelope

ONE = seal(honest_envelope(number=4), KEYS[0])
OTHER = seal(honest_envelope(number=4, slots=(0, 2)), KEYS[0])


def test_two_envelopes_of_one_round() -> None:
    proof = equivocation(ONE, OTHER, LIMITS)
    assert (proof.swarm, proof.member, proof.round) == (SWARM.swarm, KEYS[0].address, 4)
    (root_a, signed_a), (root_b, signed_b) = proof.signed
    assert root_a == honest_envelope(number=4).root
    assert root_b == honest_envelope(number=4, slots=(0, 2)).root
    assert len(signed_a) == len(signed_b) == 65
    assert signed_a != signed_b


def test_the_same_envelope_twice_proves_nothing() -> None:
    with pytest.raises(IntegrityError, match="the same groups"):
        equivocation(ONE, ONE, LIMITS)


@pytest.mark.parametrize(
    "other", [seal(honest_envelope(number=5), KEYS[0]), seal(honest_envelope(key=1, number=4), KEYS[1])]
)
def test_other_rounds_and_members_prove_nothing(other: bytes) -> None:
    with pytest.raises(IntegrityError, match="one round"):
        equivocation(ONE, other, LIMITS)


def test_what_is_no_envelope_of_this_swarm_proves_nothing() -> None:
    elsewhere = SwarmId(SWARM.chain_id, SWARM.swarms, 2)
    foreign = honest_envelope(number=4).model_copy(update={"swarm": elsewhere.swarm})
    with pytest.raises(MalformedEnvelope, match="this is swarm 1"):
        equivocation(ONE, seal(foreign, KEYS[0]), LIMITS)
    with pytest.raises(MalformedEnvelope, match="not JSON"):
        equivocation(ONE, b"", LIMITS)
