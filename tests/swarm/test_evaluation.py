"""A member measures itself on problems that no round has, and learns as if it had not."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from engines.base import Completion, Engine, Request, Sampling
from engines.hf import TransformersEngine
from protocol.config import EnvironmentConfig
from protocol.errors import ConfigError, ScoringUnavailable
from swarm.config import MeasuringConfig
from swarm.envelope import heldout_noise, heldout_problem, round_problem
from swarm.generation import HeldOut, check_held_out
from swarm.member import Member, assemble
from swarm.state import measured
from tests.swarm.world import DOCUMENT, SwarmWorld, journal


class Listening(TransformersEngine):
    """Remembers what it was asked, and what it answered."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[list[Request]] = []
        self.answered: list[list[Completion]] = []

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        made = super().generate(requests, sampling)
        self.asked.append(list(requests))
        self.answered.append(made)
        return made


def member(world: SwarmWorld, name: int, home: str, engine: Engine, every: int) -> Member:
    evaluation = MeasuringConfig(every=every, problems=24)
    config = world.config(name, home=world.root / home, evaluation=evaluation)
    config.home.mkdir()
    return assemble(config, engine, world.exchange)


def measurements(engine: Listening) -> set[tuple[tuple[float, ...], ...]]:
    """The log-probs of all answers to what is asked before the first round, each time that it is asked."""
    pairs = zip(engine.asked, engine.answered, strict=True)
    return {tuple(one.logprobs for one in made) for asked, made in pairs if asked == engine.asked[0]}


def test_measuring_changes_nothing_that_is_trained(world: SwarmWorld) -> None:
    engine = Listening()
    often = member(world, 0, "often", engine, 1)
    never = member(world, 0, "never", TransformersEngine(), 0)
    rounds = 0
    while len(measurements(engine)) < 2 and rounds < 40:  # in some, all answers are equally wrong and nothing is learnt
        for made in (often, never):
            made.advance()
        rounds += 1
    first, second = (made.learner.policy.model.state_dict() for made in (often, never))
    assert all(torch.equal(first[name], second[name]) for name in first)
    found, none = (measured(journal(made)) for made in (often, never))
    assert [trained for trained, _ in found] == list(range(rounds + 1))
    assert none == []
    assert len(measurements(engine)) > 1, "the weights change, and with them what is measured"


def test_all_members_are_asked_the_same_and_no_round_asks_it(world: SwarmWorld) -> None:
    asked = []
    for name in (0, 1):
        engine = Listening()
        member(world, name, f"home-{name}", engine, 1).advance()
        before, *own, after = engine.asked
        assert before == after
        assert own
        assert not {one.noise_key for made in own for one in made} & {one.noise_key for one in before}
        asked.append(before)
    assert asked[0] == asked[1]
    assert len({one.noise_key for one in asked[0]}) == 24


def test_held_out_seeds_are_no_seeds_of_rounds() -> None:
    held_out = {heldout_problem(DOCUMENT.digest, index) for index in range(200)}
    rounds = {
        round_problem(DOCUMENT.digest, f"0x{member:040x}", number, slot)
        for member in range(4) for number in range(40) for slot in range(8)
    }  # fmt: skip
    assert len(held_out) == 200
    assert not held_out & rounds
    assert heldout_noise(DOCUMENT.digest, 1) != heldout_noise(DOCUMENT.digest, 2)
    assert heldout_problem(bytes(32), 0) != heldout_problem(DOCUMENT.digest, 0)


def test_what_cannot_be_measured_does_not_undo_a_round(world: SwarmWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round that is tried again would be trained twice."""

    def unavailable(self: HeldOut, engine: Engine) -> float:
        raise ScoringUnavailable("the scorer is away")

    monkeypatch.setattr(HeldOut, "reward", unavailable)
    made = member(world, 0, "home", TransformersEngine(), 1)
    made.advance()
    assert made.progress.next == 1
    assert measured(journal(made)) == []


@pytest.mark.parametrize(
    ("every", "rounds", "expected"), [(2, 5, [0, 2, 4, 5]), (3, 0, [0, 3]), (9, 5, [0, 5]), (1, 3, [0, 1, 2, 3, 4, 5])]
)
def test_when_it_is_measured(every: int, rounds: int, expected: list[int]) -> None:
    assert [number for number in range(6) if MeasuringConfig(every=every).due(number, rounds)] == expected


def test_a_data_file_without_rows_held_out_cannot_be_measured_on(tmp_path: Path) -> None:
    rows = EnvironmentConfig(name="genesys", content="ab" * 32, rows=10)
    with pytest.raises(ConfigError, match="holds no rows out"):
        check_held_out([rows])
    check_held_out([rows.model_copy(update={"held_out": 2})])
