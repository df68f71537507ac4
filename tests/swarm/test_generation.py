"""Others' texts under the own tokenizer: only what this member's policy could have said is trained on."""

import math
from pathlib import Path

import pytest

from attacks.swarm import Text, scored_group
from environments.prompts import completion_text
from protocol.models import EOS
from swarm.envelope import round_problem
from swarm.generation import MemberModel, Retokeniser
from swarm.sampling import InspectedGroup
from tests.swarm.world import DOCUMENT, TEXTS, SwarmWorld
from trainer.data.batch import Group

SEED = round_problem(DOCUMENT.digest, "0x" + "11" * 20, 0, 0)


@pytest.fixture
def model(world: SwarmWorld) -> MemberModel:
    config = world.config(0)
    return MemberModel(DOCUMENT.pool_config(config.model, 48, 64), Path(config.model.source))


def group(model: MemberModel, assumed_behaviour_prob: float | None, *texts: Text) -> Group | None:
    """What a peer's completions of a problem are to this model."""
    shared = scored_group(TEXTS, SEED, 0, texts)
    return Retokeniser(model, assumed_behaviour_prob).group(InspectedGroup("", 0, 0, shared.rewards, SEED, shared))


RIGHT = Text(f"1 + 1</think>{TEXTS.problem(SEED).answer}")


def test_a_text_becomes_the_own_tokens(model: MemberModel) -> None:
    made = group(model, 1.0, RIGHT, Text("so it is</think>7", ended=False))
    assert made is not None
    right, other = made
    assert right.output[-1] == model.end
    assert other.output[-1] != model.end
    assert completion_text(model.tokenizer, other.output, model.eos) == "so it is</think>7"
    assert right.prompt == other.prompt == model.prompts.prompt(SEED, 0)
    assert right.reward == 1.0


def weights(model: MemberModel, assumed_behaviour_prob: float | None, *texts: str) -> list[float]:
    """The chance with which each completion's tokens are taken to have been said."""
    found = group(model, assumed_behaviour_prob, *map(Text, texts))
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
    assert (group(model, 1.0, RIGHT, Text(text, ended)) is not None) is fits
