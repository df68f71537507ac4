"""What a policy seldom says is rationed by sharer: an honest one hardly notices, one that plants does."""

import random

import pytest

from protocol.swarm.habits import HabitRations, ration_allows, strangeness
from protocol.swarm.places import DrawnLately

RATION = 0.25


def test_strangeness_is_the_median_of_what_is_made_likelier() -> None:
    assert strangeness([9.0, 1.0, 3.0, 50.0], [1.0, 1.0, 1.0, 0.0]) == 3.0
    assert strangeness([9.0, 50.0, 50.0], [0.5, 0.0, 0.1]) == 9.0
    assert strangeness([9.0, 1.0, 0.0], [1.0, 1.0, 0.0]) == 5.0
    assert strangeness([1.0, 2.0], [1.0, 1.0]) == 0.0
    with pytest.raises(ValueError, match="argument"):
        strangeness([1.0], [1.0, 0.0])


def test_one_strange_completion_makes_no_group_rare() -> None:
    assert strangeness([0.1, 0.1, 30.0, 0.0], [1.0, 1.0, 1.0, 0.0]) == 0.1


def test_a_ration_is_a_share_of_what_is_trained_on() -> None:
    allowed = [trained for trained in range(12) if ration_allows(0, trained, RATION)]
    assert allowed == list(range(3, 12)), "none for a new key before three that are not rare"
    assert [ration_allows(rare, 11, RATION) for rare in range(4)] == [True, True, True, False]


def test_what_a_round_takes_counts_at_once() -> None:
    rations = HabitRations({"a": DrawnLately(trained=3)}, RATION)
    assert rations.allow("a")
    rations.take("a", rare=True)
    assert not rations.allow("a")
    assert not rations.allow("new")
    for _ in range(4):
        rations.take("a", rare=False)
    assert rations.allow("a")
    assert not HabitRations({"a": DrawnLately(trained=3, rare=1)}, RATION).allow("a")


def test_without_a_ration_everything_is_allowed() -> None:
    assert HabitRations({"a": DrawnLately(trained=9, rare=9)}, None).allow("a")


def trained_on(chance_of_rare: float, groups: int, seed: int) -> tuple[float, float]:
    """Of so many groups the share that is trained on, and the share that is and is rare."""
    chance, rations = random.Random(seed), HabitRations({}, RATION)
    trained = rare = 0
    for _ in range(groups):
        seldom = chance.random() < chance_of_rare
        if seldom and not rations.allow("a"):
            continue
        rations.take("a", seldom)
        trained, rare = trained + 1, rare + seldom
    return trained / groups, rare / groups


@pytest.mark.parametrize("seed", range(3))
def test_who_is_honest_hardly_notices_and_who_plants_has_a_part(seed: int) -> None:
    honest, _ = trained_on(0.14, 400, seed)
    assert honest > 0.95
    _, planted = trained_on(0.75, 400, seed)
    assert planted < 0.12
