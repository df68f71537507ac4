"""Shapes of completions: what is far beyond what one's own policy says is found, whatever numbers come."""

import math
import re
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attacks.swarm import Text, scored_group, worked_answer
from environments.registry import load_environment
from protocol.files import write_folder
from swarm import plausibility
from swarm.envelope import SharedGroup, round_problem
from swarm.member import Member
from swarm.plausibility import PlausibilityJudge, Shape, implausible, shape_of, surprise_of_not, usual
from swarm.sampling import InspectedGroup
from tests.swarm.samples import SUMS
from tests.swarm.world import DOCUMENT, TEXTS, SwarmWorld, shared_names
from trainer.model.base_model import Recipe, warm_up
from trainer.model.tiny_model import END_OF_THOUGHT

LIMITS = {"SLACK": 2.0, "TOKEN_SLACK": 3.0, "STOP_SLACK": 2.0, "WINDOW": 4, "ODD": 0.0, "LONGER": 1.25, "BRIEF": 0}
ORDINARY = [0.1, 1.5, 0.0, 3.0, 0.2, 0.0, 0.4, 0.1]
OWN = [Shape(3.0, 4.7, 8)] * 20
surprises = st.lists(st.floats(0, 30), min_size=1, max_size=40)


@pytest.fixture(autouse=True)
def small_limits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no model speaks."""
    for name, value in LIMITS.items() if "world" not in request.fixturenames else ():
        monkeypatch.setattr(plausibility, name, value)


def doubt(values: list[float], stop: float = 0.0, own: list[Shape] = OWN) -> str | None:
    return implausible(shape_of(values, stop), usual(own))


@pytest.mark.parametrize(
    ("values", "stop", "word"),
    [
        (ORDINARY, 0.0, None),
        ([*ORDINARY, 4.9], 0.0, None),
        *(
            ([*ORDINARY[:place], 9.0, *ORDINARY[place:]], 0.0, "a token of 9.0 nats, 3.0 is usual")
            for place in range(9)
        ),
        ([*ORDINARY, 4.5, 4.5, 4.5, 4.5], 0.0, "18.0 nats within 4 tokens, 4.7 are usual"),
        ([0.1] * 10, 0.0, None),
        ([0.1] * 11, 0.0, "11 tokens, 8 are usual"),
        (ORDINARY, surprise_of_not(math.log(0.5)), None),
        (ORDINARY, surprise_of_not(math.log(0.99)), "not to end there takes 4.6"),
        ([*ORDINARY, math.nan], 0.0, "nan|inf"),
        ([*ORDINARY, math.inf], 0.0, "inf"),
        (ORDINARY, math.nan, "not to end there"),
        (ORDINARY, math.inf, "not to end there"),
    ],
)
def test_what_is_like_one_s_own_is_plausible_and_nothing_else(
    values: list[float], stop: float, word: str | None
) -> None:
    """A policy that ends there with 99% takes 4.6 nats not to; with half it takes 0.7."""
    reason = doubt(values, stop)
    assert reason is None if word is None else re.search(word, str(reason)) is not None


def test_a_brief_text_may_be_longer_than_one_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plausibility, "BRIEF", 11)
    assert doubt([0.1] * 11) is None
    assert doubt([0.1] * 12) is not None


def test_an_engine_s_mistake_does_not_make_everything_usual() -> None:
    broken = [shape_of([math.nan, 0.1]), *OWN]
    assert not broken[0].finite
    assert usual(broken) == usual(OWN)
    assert doubt([9.0], own=broken) is not None


def test_without_own_completions_nothing_is_plausible() -> None:
    assert usual([]) == Shape(-math.inf, -math.inf, 0)
    assert doubt([0.0], own=[]) is not None
    assert doubt([0.0], own=[shape_of([math.inf])]) is not None


def test_one_token_and_none() -> None:
    assert shape_of([2.0]) == Shape(2.0, 2.0, 1)
    assert shape_of([]) == Shape(0.0, 0.0, 0)
    assert shape_of([-0.5]).worst == 0.0, "rounding may make p a little more than 1"


def test_the_odd_ones_out_are_not_what_is_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    own = [*OWN, *OWN, *OWN, *OWN, *OWN, Shape(20.0, 15.0, 8)]
    assert usual(own) == Shape(20.0, 15.0, 8)
    monkeypatch.setattr(plausibility, "ODD", 0.01)
    assert usual(own) == OWN[0]


@given(surprises, st.integers(1, 50))
def test_the_window_lies_between_the_worst_and_the_whole(values: list[float], window: int) -> None:
    with patch.object(plausibility, "WINDOW", window):
        shape = shape_of(values)
    assert shape.worst <= shape.window + 1e-9
    assert shape.window <= math.fsum(values) + 1e-9
    assert window < len(values) or shape.window == math.fsum(values)
    with patch.object(plausibility, "WINDOW", 1):
        assert shape_of(values).window == shape.worst


@given(st.lists(surprises, min_size=1, max_size=20))
def test_every_own_completion_is_plausible_where_none_is_odd(texts: list[list[float]]) -> None:
    own = [shape_of(one) for one in texts]
    assert all(implausible(one, usual(own)) is None for one in own)


@given(surprises, st.integers(0, 39), st.floats(0, 50))
def test_more_surprise_never_makes_a_text_more_plausible(values: list[float], place: int, more: float) -> None:
    worse = list(values)
    worse[place % len(values)] += more
    if doubt(values) is not None:
        assert doubt(worse) is not None


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_not_ending_is_never_a_negative_surprise(logarithm: float) -> None:
    found = surprise_of_not(logarithm)
    assert found >= 0
    assert not math.isnan(found)


def test_not_ending_takes_what_is_left_of_the_probability() -> None:
    assert surprise_of_not(math.log(0.75)) == pytest.approx(math.log(4))
    assert surprise_of_not(-math.inf) == 0.0
    assert surprise_of_not(0.0) == math.inf
    assert surprise_of_not(-1e-300) > 600


# The judge


RECIPE = Recipe(worked_steps=200, mixed_steps=20)  # a policy that knows nothing finds nothing impossible


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "tiny"
    return write_folder(folder, lambda aside: warm_up(aside, load_environment(SUMS), 3, RECIPE))


@pytest.fixture
def world(tmp_path: Path, learnt: Path) -> SwarmWorld:
    return SwarmWorld(tmp_path, learnt)


def judge_of(made: Member) -> PlausibilityJudge:
    judge = made.judge
    assert judge is not None
    return judge


def found_group(world: SwarmWorld, texts: list[Text], slot: int = 0) -> InspectedGroup:
    address = world.account(1).address
    seed = round_problem(DOCUMENT.digest, address, 0, slot)
    group = scored_group(TEXTS, seed, slot, texts)
    return InspectedGroup(address, 0, slot, group.rewards, seed, group)


def shared_by(world: SwarmWorld, groups: list[SharedGroup], number: int) -> list[InspectedGroup]:
    address = world.account(1).address
    seeds = [round_problem(DOCUMENT.digest, address, number, one.slot) for one in groups]
    return [
        InspectedGroup(address, number, one.slot, one.rewards, seed, one)
        for one, seed in zip(groups, seeds, strict=True)
    ]


def test_planted_text_is_doubted_and_not_trained_on(world: SwarmWorld) -> None:
    kinds = ("phrase", "phrase, one of eight", "wrong fact", "length")
    for name, kind in enumerate(kinds, 1):
        assert len(world.poison(name, 2, kind)) == 2
    made = world.member(0)
    for _ in range(2):
        made.advance()
    assert not shared_names(made)
    for name, kind in enumerate(kinds, 1):
        record = made.inbox.state.records[world.account(name).address]
        assert record.doubted >= 6, kind
        assert record.breaches == record.trained == 0, "it is no proof of anything"
        assert record.plausibility < 0.2, kind


def test_a_member_of_the_same_model_is_believed(world: SwarmWorld) -> None:
    """Of what another one samples from the same weights nearly everything passes."""
    made, parts = world.member(0), world.member(1)
    judge = judge_of(made)
    shapes: list[Shape] = []
    for number in range(4):
        shapes = judge.with_own(shapes, made.own_rounds.make(parts.engine, number, range(6)))
    doubts = []
    for number in range(4):
        own = [one.shared for one in parts.own_rounds.make(parts.engine, number, range(6)) if one.shared is not None]
        for found in shared_by(world, own, number):
            group = made.retokeniser.group(found)
            assert group is not None
            doubts.append(judge.doubt(found, group, shapes))
    assert len(doubts) == 24
    assert sum(one is not None for one in doubts) <= 3, [one for one in doubts if one]


def test_who_says_that_a_text_did_not_end_is_asked_how_likely_that_is(world: SwarmWorld) -> None:
    """The policy is sure of the end after an answer of two digits; of a text cut short in its middle it is not."""
    made = world.member(0)
    problem = TEXTS.problem(round_problem(DOCUMENT.digest, world.account(1).address, 0, 0))
    right = worked_answer(problem)
    cut = right.partition(END_OF_THOUGHT)[0][:-1]
    found = found_group(world, [Text(right, ended=False), Text(right), Text(cut, ended=False)])
    group = made.retokeniser.group(found)
    assert group is not None
    unended, ended, middle = judge_of(made).shapes(found, group)
    assert unended.stop > 2 > middle.stop >= 0 == ended.stop
    assert unended.length + 1 == ended.length
    assert unended.worst == pytest.approx(ended.worst, abs=1e-3)


def test_the_learner_and_the_engine_find_a_text_as_likely(world: SwarmWorld) -> None:
    """What is usual comes from the engine's log-probs, what is compared with it from the learner's."""
    made = world.member(1)
    judge, own = judge_of(made), made.own_rounds.make(made.engine, 0, range(4))
    found = shared_by(world, [one.shared for one in own if one.shared is not None], 0)
    theirs = [shape for one, group in zip(found, own, strict=True) for shape in judge.shapes(one, group.group)]
    ours = judge.with_own([], own)
    assert len(ours) == len(theirs) == 24
    for first, second in zip(ours, theirs, strict=True):
        assert first[:3] == pytest.approx(second[:3], abs=1e-3)


def test_with_few_completions_of_its_own_it_believes_nothing(world: SwarmWorld) -> None:
    made = world.member(0)
    found = found_group(world, [Text(f"{END_OF_THOUGHT}1"), Text(f"{END_OF_THOUGHT}2")])
    group = made.retokeniser.group(found)
    assert group is not None
    assert "too few" in str(judge_of(made).doubt(found, group, []))


def test_an_engine_that_says_no_numbers_is_not_compared_with(world: SwarmWorld) -> None:
    made = world.member(0)
    (own,) = made.own_rounds.make(made.engine, 0, range(1))
    broken = replace(own, logprobs=((math.nan,), (-math.inf, -1.0), *own.logprobs[2:]))
    assert len(judge_of(made).with_own([], [broken])) == len(own.logprobs) - 2
    assert len(judge_of(made).with_own([], [own] * 200)) == 512, "no more than the history"


def test_what_is_usual_is_as_old_as_the_weights(world: SwarmWorld) -> None:
    made = world.member(0)
    for _ in range(2):
        made.advance()
    shapes = made.inbox.state.shapes
    assert len(shapes) == 2 * 6 * 6
    assert world.member(0).inbox.state.shapes == shapes
    assert made.inbox.state.model_dump(mode="json")["shapes"][0] == list(shapes[0])
