"""Others' texts under the own tokenizer: only what this member's policy could have said is trained on."""

import math
from pathlib import Path

import pytest

from environments.pool import TextEnvironments
from environments.prompts import completion_text
from protocol.models import EOS
from swarm.envelope import SharedCompletion, SharedGroup, question_digest, round_problem
from swarm.generation import MemberModel, Retokeniser
from swarm.sampling import InspectedGroup
from tests.swarm.world import DOCUMENT, SwarmWorld
from trainer.data.batch import Group

TEXTS = TextEnvironments(DOCUMENT.environments, DOCUMENT.answer_after)
SEED = round_problem(DOCUMENT.digest, "0x" + "11" * 20, 0, 0)


@pytest.fixture
def model(world: SwarmWorld) -> MemberModel:
    config = world.config(0)
    return MemberModel(DOCUMENT.pool_config(config.model, 48, 64), Path(config.model.source))


def group(model: MemberModel, text: str, ended: bool = True) -> Group | None:
    right = f"1 + 1</think>{TEXTS.problem(SEED).answer}"
    made = [
        SharedCompletion(text=one, ended=end, reward=TEXTS.score(SEED, one), logprob=None)
        for one, end in ((right, True), (text, ended))
    ]
    shared = SharedGroup(slot=0, question=question_digest(TEXTS.problem(SEED).question), completions=made)
    return Retokeniser(model, 1.0).group(InspectedGroup("0x" + "11" * 20, 0, 0, shared.rewards, SEED, shared))


def test_a_text_becomes_the_own_tokens(model: MemberModel) -> None:
    made = group(model, "so it is</think>7", ended=False)
    assert made is not None
    right, other = made
    assert right.output[-1] == model.end
    assert other.output[-1] != model.end
    assert completion_text(model.tokenizer, other.output, model.eos) == "so it is</think>7"
    assert right.prompt == other.prompt == model.prompts.prompt(SEED, 0)
    assert right.reward == 1.0


def weights(model: MemberModel, assumed_behaviour_prob: float | None, *texts: str) -> list[float]:
    """The chance with which each completion's tokens are taken to have been said."""
    made = [SharedCompletion(text=one, ended=True, reward=TEXTS.score(SEED, one), logprob=None) for one in texts]
    shared = SharedGroup(slot=0, question=question_digest(TEXTS.problem(SEED).question), completions=made)
    found = Retokeniser(model, assumed_behaviour_prob).group(InspectedGroup("", 0, 0, shared.rewards, SEED, shared))
    assert found is not None
    assert all(len(one.logprobs) in (0, len(one.output)) for one in found)
    assert all(len(set(one.logprobs)) <= 1 for one in found)
    return [math.exp(one.logprobs[0]) if one.logprobs else 0.0 for one in found]


def test_only_what_becomes_likelier_counts_and_each_text_once(model: MemberModel) -> None:
    answer = TEXTS.problem(SEED).answer
    plain, worked = f"</think>{answer}", f"1 + 1</think>{answer}"
    wrong = ["</think>+", "</think>-"]
    assert weights(model, 1.0, worked, plain, worked, *wrong) == [1.0, 1.0, math.inf, math.inf, math.inf]
    assert weights(model, 0.5, wrong[0], plain) == [math.inf, pytest.approx(0.5)]
    assert weights(model, None, worked, worked, wrong[0]) == [0.0] * 3


@pytest.mark.parametrize(
    ("text", "ended", "fits"),
    [
        ("a" * 47, True, True),
        ("a" * 48, True, False),
        ("a" * 48, False, True),
        ("", True, True),
        ("", False, False),
        (f"7{EOS}</think>8", True, False),
        (f"7{EOS}", False, False),
        ("<|pad|>", True, False),
        ("ü€\x00\u202e", True, True),
    ],
)
def test_what_the_own_policy_could_not_have_said_is_left_out(
    model: MemberModel, text: str, ended: bool, fits: bool
) -> None:
    assert (group(model, text, ended) is not None) is fits
