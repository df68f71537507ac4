"""What a member's own policy would not have said it does not train on, and it says so of nobody who is like itself."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from attacks.swarm import POISONS, Poisoner, Text, Worked, scored_group
from environments.catalogue import load_environment
from protocol.files import write_folder
from swarm.config import MixConfig
from swarm.envelope import EnvelopeLimits, SharedGroup, round_problem
from swarm.exchange import FolderExchange
from swarm.inspection import InspectedGroup
from swarm.member import AssembledMember, load_swarm
from swarm.plausibility import PlausibilityJudge, Shape
from swarm.sampling import Offer
from swarm.state import JOURNAL, read_journal
from tests.swarm.world import DOCUMENT, SUMS, SwarmWorld, one_round
from trainer.base_model import Recipe, warm_up, worked_sum
from trainer.tiny_model import END_OF_THOUGHT

RECIPE = Recipe(worked_steps=200, mixed_steps=20)
"""Twenty seconds of the warm-up: a policy that knows nothing finds nothing impossible."""
LIMITS = EnvelopeLimits.of(DOCUMENT)
CREDULOUS = MixConfig(own=3, shared=3, plausibility=None)


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "tiny"
    return write_folder(folder, lambda aside: warm_up(aside, load_environment(SUMS), 3, RECIPE))


@pytest.fixture
def world(tmp_path: Path, learnt: Path) -> SwarmWorld:
    return SwarmWorld(tmp_path, learnt)


def poison(world: SwarmWorld, name: int, kind: str, rounds: int = 1) -> str:
    """A poisoner shares so many rounds; its address."""
    _, texts = load_swarm(world.config(name))
    made = Poisoner(world.account(name), LIMITS, texts, POISONS[kind])
    for number in range(rounds):
        data = made.envelope(number)
        assert data is not None
        FolderExchange(world.exchange).publish(data)
    return world.account(name).address


def judge_of(made: AssembledMember) -> PlausibilityJudge:
    judge = made.member.parts.judge
    assert judge is not None
    return judge


def found_group(world: SwarmWorld, texts: list[Text], slot: int = 0) -> InspectedGroup:
    address = world.account(1).address
    seed = round_problem(DOCUMENT.digest, address, 0, slot)
    group = scored_group(load_swarm(world.config(1))[1], seed, slot, texts)
    return InspectedGroup(Offer(address, 0, slot, "", group.rewards), seed, group)


def shared_by(world: SwarmWorld, groups: list[SharedGroup], number: int) -> list[InspectedGroup]:
    address = world.account(1).address
    seeds = [round_problem(DOCUMENT.digest, address, number, one.slot) for one in groups]
    return [
        InspectedGroup(Offer(address, number, one.slot, "", one.rewards), seed, one)
        for one, seed in zip(groups, seeds, strict=True)
    ]


@pytest.mark.parametrize("kind", ["phrase", "phrase, one of eight", "wrong fact", "length"])
def test_planted_text_is_doubted_and_not_trained_on(world: SwarmWorld, kind: str) -> None:
    address = poison(world, 1, kind, rounds=2)
    made = world.member(0)
    for _ in range(2):
        one_round(made)
    assert not any(line["shared"] for line in read_journal(made.progress.home / JOURNAL))
    record = made.inbox.state.records[address]
    assert record.doubted >= 6
    assert record.breaches == record.trained == 0, "it is no proof of anything"
    assert record.plausibility < 0.2


def test_without_the_judge_planted_text_is_trained_on(world: SwarmWorld) -> None:
    address = poison(world, 1, "phrase")
    made = world.member(0, mix=CREDULOUS)
    one_round(made)
    (line,) = read_journal(made.progress.home / JOURNAL)
    assert len(line["shared"]) == 3
    assert made.inbox.state.records[address].trained == 3


def test_a_member_of_the_same_model_is_believed(world: SwarmWorld) -> None:
    """Of what another one samples from the same weights nearly everything passes."""
    made, other = world.member(0), world.member(1)
    parts = other.member.parts
    judge = judge_of(made)
    shapes: list[Shape] = []
    for number in range(4):
        shapes = judge.with_own(shapes, made.member.parts.rounds.make(parts.engine, number, range(6)))
    doubts = []
    for number in range(4):
        own = [one.shared for one in parts.rounds.make(parts.engine, number, range(6)) if one.shared is not None]
        for found in shared_by(world, own, number):
            group = made.member.parts.retokeniser.group(found)
            assert group is not None
            doubts.append(judge.doubt(found, group, shapes))
    assert len(doubts) == 24
    assert sum(one is not None for one in doubts) <= 3, [one for one in doubts if one]


def test_who_says_that_a_text_did_not_end_is_asked_how_likely_that_is(world: SwarmWorld) -> None:
    """The policy is sure of the end after an answer of two digits; of a text cut short in its middle it is not."""
    made = world.member(0)
    problem = load_swarm(world.config(1))[1].problem(round_problem(DOCUMENT.digest, world.account(1).address, 0, 0))
    right = Worked(problem, worked_sum(problem), ()).right(worked_sum(problem))
    cut = right.partition(END_OF_THOUGHT)[0][:-1]
    found = found_group(world, [Text(right, ended=False), Text(right), Text(cut, ended=False)])
    group = made.member.parts.retokeniser.group(found)
    assert group is not None
    unended, ended, middle = judge_of(made).shapes(found, group)
    assert unended.stop > 2 > middle.stop >= 0 == ended.stop
    assert unended.length + 1 == ended.length
    assert unended.worst == pytest.approx(ended.worst, abs=1e-3)


def test_the_learner_and_the_engine_find_a_text_as_likely(world: SwarmWorld) -> None:
    """What is usual comes from the engine's log-probs, what is compared with it from the learner's."""
    made = world.member(1)
    parts, judge = made.member.parts, judge_of(made)
    own = parts.rounds.make(parts.engine, 0, range(4))
    found = shared_by(world, [one.shared for one in own if one.shared is not None], 0)
    theirs = [shape for one, group in zip(found, own, strict=True) for shape in judge.shapes(one, group.group)]
    ours = judge.with_own([], own)
    assert len(ours) == len(theirs) == 24
    for first, second in zip(ours, theirs, strict=True):
        assert first[:3] == pytest.approx(second[:3], abs=1e-3)


def test_with_few_completions_of_its_own_it_believes_nothing(world: SwarmWorld) -> None:
    made = world.member(0)
    found = found_group(world, [Text(f"{END_OF_THOUGHT}1"), Text(f"{END_OF_THOUGHT}2")])
    group = made.member.parts.retokeniser.group(found)
    assert group is not None
    assert "too few" in str(judge_of(made).doubt(found, group, []))


def test_an_engine_that_says_no_numbers_is_not_compared_with(world: SwarmWorld) -> None:
    made = world.member(0)
    parts = made.member.parts
    (own,) = parts.rounds.make(parts.engine, 0, range(1))
    broken = replace(own, logprobs=((math.nan,), (-math.inf, -1.0), *own.logprobs[2:]))
    assert len(judge_of(made).with_own([], [broken])) == len(own.logprobs) - 2
    assert len(judge_of(made).with_own([], [own] * 200)) == 512, "no more than the history"


def test_what_is_usual_is_as_old_as_the_weights(world: SwarmWorld) -> None:
    made = world.member(0)
    for _ in range(2):
        one_round(made)
    shapes = made.inbox.state.shapes
    assert len(shapes) == 2 * 6 * 6
    assert world.member(0).inbox.state.shapes == shapes
    assert json.loads(json.dumps(made.inbox.state.document()))["shapes"][0] == list(shapes[0])
