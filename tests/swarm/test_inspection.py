"""A receiver believes nothing: false scores and other problems are found, named, and cost the peer its envelope."""

import pytest

from swarm.envelope import MalformedEnvelope, SharedGroup, round_problem, seal
from swarm.inbox import Inspected, Inspector
from swarm.sampling import Breach
from tests.swarm.samples import DOCUMENT, ENVIRONMENTS, KEYS, honest_envelope, honest_group

MEMBERS = {key.address for key in KEYS[:2]}
INSPECTOR = Inspector(DOCUMENT, ENVIRONMENTS, MEMBERS)


def inspect(groups: list[SharedGroup]) -> Inspected:
    envelope = honest_envelope().model_copy(update={"groups": groups})
    return INSPECTOR.inspect(seal(envelope, KEYS[0]))


def with_reward(group: SharedGroup, place: int, reward: float) -> SharedGroup:
    made = list(group.completions)
    made[place] = made[place].model_copy(update={"reward": reward})
    return group.model_copy(update={"completions": made})


def test_an_honest_envelope_is_true() -> None:
    found = INSPECTOR.inspect(seal(honest_envelope(slots=(0, 2)), KEYS[0]))
    assert found.breach is None
    assert [one.name for one in found.groups] == [f"{KEYS[0].address}/0/{slot}" for slot in (0, 2)]
    assert found.groups[0].rewards == (1.0, 0.0)
    assert found.groups[0].problem_seed == round_problem(DOCUMENT.digest, KEYS[0].address, 0, 0)


@pytest.mark.parametrize(("place", "reward"), [(0, 0.0), (1, 1.0), (1, 0.5)])
def test_a_false_score_refuses_the_whole_envelope(place: int, reward: float) -> None:
    member = KEYS[0].address
    found = inspect([honest_group(member, 0, 0), with_reward(honest_group(member, 0, 1), place, reward)])
    assert found.breach is Breach.FALSE_REWARD
    assert found.groups == ()
    assert f"slot 1 (reasoning_gym/chain_sum/{round_problem(DOCUMENT.digest, member, 0, 1)}" in found.where


def test_a_text_for_another_problem_is_found() -> None:
    """Whoever shares a group that was made for another slot, round or member."""
    member = KEYS[0].address
    for other in (honest_group(member, 0, 1), honest_group(member, 1, 0), honest_group(KEYS[1].address, 0, 0)):
        assert inspect([other.model_copy(update={"slot": 0})]).breach is Breach.OTHER_PROBLEM
    # with the right question's digest, its right answer is scored as what it is: a wrong one
    own, other = honest_group(member, 0, 0), honest_group(member, 0, 1)
    assert other.completions[0].text != own.completions[0].text
    assert inspect([other.model_copy(update={"slot": 0, "question": own.question})]).breach is Breach.FALSE_REWARD


def test_strangers_to_the_swarm_are_not_scored() -> None:
    with pytest.raises(MalformedEnvelope, match="no member"):
        INSPECTOR.inspect(seal(honest_envelope(key=2), KEYS[2]))
