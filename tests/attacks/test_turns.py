"""Rollouts of several turns: honest ones are accepted, and whatever is forged, left out or put elsewhere is caught."""

from collections import Counter
from functools import cache
from typing import Any

import pytest

from attacks.base import Cheat
from attacks.registry import find
from attacks.turns import TURN_ATTACKS
from engines.hf import TransformersEngine
from environments.pool import PoolEnvironments
from protocol.config import EnvironmentConfig
from protocol.rollout_file.file import read
from protocol.rollout_file.rows import Limits, Transcript
from protocol.verdict import Code, Verdict
from tests.validator import tiny
from validator.judging.pipeline import judge
from worker.produce import Produced, Producer

CONFIG = tiny.CONFIG.model_copy(
    update={
        "environments": (EnvironmentConfig(name="lookup"),),
        "model": tiny.CONFIG.model.model_copy(update={"answer_after": ""}),
        "work": tiny.CONFIG.work.model_copy(update={"max_new_tokens": 70, "samples_per_problem": 4, "targets": ()}),
    }
)
WORK = tiny.work_of(1)
W, S, T, D = Code.REJECT_WEIGHTS, Code.REJECT_SAMPLING, Code.REJECT_TERMINATION, Code.REJECT_DUPLICATE
# By which a deceit is caught as it is, and when its text is proven anew
EXPECTED: dict[str, tuple[tuple[Code, ...], tuple[Code, ...]]] = {
    **dict.fromkeys(("forged-reply", "prolonged-reply", "withheld-reply"), ((W,), (S,))),
    **dict.fromkeys(("skipped-turn", "reordered-turns", "paid-reply", "own-reply"), ((W, T), (S, T))),
    **dict.fromkeys(("cut-turn", "prolonged-turn"), ((W, T), (S, T))),
    **dict.fromkeys(("early-end", "late-end"), ((T,), (T,))),
    "spliced-turns": ((W, T, D), (S, T)),
    "written-calls": ((W, T, D), (S, T, D)),
}


@cache
def environment() -> PoolEnvironments:
    return PoolEnvironments.of(CONFIG, tiny.model_folder())


@cache
def honest() -> Produced:
    producer = Producer(CONFIG, tiny.engine(0))
    producer.load(tiny.model_folder())
    return producer.make(WORK)


def cheat(name: str, strength: float) -> Cheat:
    made = TURN_ATTACKS[name].build(CONFIG, TransformersEngine(max_batch=8), strength)
    made.load(tiny.model_folder())
    assert isinstance(made, Cheat)
    return made


def verdict_on(made: Produced, **changes: Any) -> Verdict:
    return judge(tiny.facts(WORK, made, **changes), made.data, CONFIG, environment(), tiny.engine(1))


def transcripts(made: Produced) -> list[Transcript]:
    return [environment().transcript(row.problem_seed, row.output_tokens) for row in made.rollouts]


def test_honest_rollouts_of_several_turns_are_accepted() -> None:
    turns = Counter(len(one.turns) for one in transcripts(honest()))
    assert turns[2] + turns[3] >= 4, turns
    assert turns[3] >= 1
    assert verdict_on(honest()).code is Code.ACCEPT


def test_the_file_holds_what_was_sampled_and_nothing_else_is_paid() -> None:
    made = honest()
    _, rows = read(made.data, Limits.of(CONFIG.work))
    assert made.commitment.units == sum(len(one.sampled) for one in transcripts(made))
    assert all(len(row.logprobs) == len(row.output_tokens) <= 70 for row in rows)
    assert any(one.inserted for one in transcripts(made))


def test_files_do_not_depend_on_who_shares_a_batch() -> None:
    producer = Producer(CONFIG, TransformersEngine(max_batch=1))
    producer.load(tiny.model_folder())
    assert [row.output_tokens for row in producer.make(WORK).rollouts] == [
        row.output_tokens for row in honest().rollouts
    ]


def test_every_attack_is_expected() -> None:
    assert set(EXPECTED) == set(TURN_ATTACKS)
    assert find("forged-reply=1") == (TURN_ATTACKS["forged-reply"], 1.0)


@pytest.mark.parametrize("anew", [0, 1])
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_attacks_are_caught(name: str, anew: int) -> None:
    verdict = verdict_on(cheat(name, anew).make(WORK))
    assert verdict.code in EXPECTED[name][anew], (verdict.code, verdict.findings[-1])


def test_a_turn_too_few_or_too_many_is_found_in_rows_that_nobody_prefills() -> None:
    for name in ("early-end", "late-end"):
        verdict = verdict_on(cheat(name, 1).make(WORK), audit_rate=0)
        assert (verdict.code, verdict.audited) == (T, [])
