"""Rows of several turns against who judges them: the model's context, and what a proof stands for among replies."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engines.base import FINISH_LENGTH, Completion
from environments.pool import PoolEnvironments
from protocol.config import EnvironmentConfig, PoolConfig
from protocol.errors import ConfigError
from protocol.models import load_tokenizer
from protocol.rollout_file.rows import Inserted, Rollout
from protocol.toploc.codec import proof_count
from protocol.verdict import Code
from tests.environments.test_program import written
from tests.validator import tiny
from tests.validator.world import BY_NAME, context, proof, with_row
from validator.judging.checks import repeats
from validator.judging.pipeline import judge
from worker.produce import Produced, Producer

ECHO = """
def problem(seed):
    return {"question": "Talk.", "answer": ""}

def reply(problem, turns):
    return "1 + 2 = 3. " * 22 + "4 + 4 = "

def score(problem, turns):
    return 0.0
"""
WORK = tiny.work_of(1)


def talking(folder: Path, **work: int) -> PoolConfig:
    """Up to four turns with 250 tokens between two."""
    params = {"turns": 4, "reply_tokens": 260}
    sizes = {"max_new_tokens": 200, "max_prompt_tokens": 16, "samples_per_problem": 6, "targets": (), **work}
    environments = (written(folder, ECHO, params=params),)
    return tiny.CONFIG.model_copy(
        update={"environments": environments, "work": tiny.CONFIG.work.model_copy(update=sizes)}
    )


def producer_of(config: PoolConfig, own: PoolEnvironments) -> Producer:
    """A worker with environments whose program may lie in a test's own folder."""
    producer = Producer(config, tiny.engine(0))
    producer._environment = own
    return producer


def test_replies_that_no_longer_fit_the_models_context_end_the_rollout(tmp_path: Path) -> None:
    """512 positions less 16 of prompt and 200 sampled leave room for one reply of 250 tokens, not for two."""
    config = talking(tmp_path)
    own = PoolEnvironments.of(config, tiny.model_folder(), tmp_path)
    end = own.eos_ids[0]
    transcript = own.transcript(3, (5, end) * 4)
    assert [len(reply) for reply in transcript.replies] == [250]
    assert (len(transcript.turns), transcript.due, transcript.excess) == (2, None, 4)


def test_a_worker_whose_model_likes_to_end_turns_makes_its_file_and_is_accepted(tmp_path: Path) -> None:
    config = talking(tmp_path)
    own = PoolEnvironments.of(config, tiny.model_folder(), tmp_path)
    made = producer_of(config, own).make(WORK)
    ended = [sum(token in own.eos_ids for token in row.output_tokens) for row in made.rollouts]
    assert max(ended) == 2, ended
    assert judge(tiny.facts(WORK, made), made.data, config, own, tiny.engine(1)).code is Code.ACCEPT


def test_a_context_without_room_for_a_single_reply_is_refused_by_whoever_loads_the_pool(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="512 positions have no room"):
        PoolEnvironments.of(talking(tmp_path, max_new_tokens=240), tiny.model_folder(), tmp_path)


def made_up(config: PoolConfig, own: PoolEnvironments, length: int) -> Produced:
    """A file of random tokens, all rows at the length limit."""
    producer, draw = producer_of(config, own), random.Random(1)
    plan, done = producer.plan(WORK), []
    for _ in plan:
        tokens = tuple(draw.randrange(256) for _ in range(length))
        proofs = tuple(proof(draw) for _ in range(proof_count(length)))
        done.append(Completion(tokens, (-1.0,) * length, FINISH_LENGTH, proofs))
    return producer.seal(WORK, producer.score(plan, done))


def test_a_row_longer_than_the_models_context_is_refused_and_stops_no_validator() -> None:
    """In a pool that promised more tokens than its model takes, such a file once left every seat without a verdict."""
    work = tiny.CONFIG.work.model_copy(update={"max_new_tokens": 600, "targets": ()})
    config = tiny.CONFIG.model_copy(update={"work": work})
    own = PoolEnvironments.of(config, tiny.model_folder())
    made = made_up(config, own, 600)
    verdict = judge(tiny.facts(WORK, made), made.data, config, own, tiny.engine(1))
    assert verdict.code is Code.REJECT_TERMINATION


def test_a_reply_of_tokens_that_the_model_lacks_ends_the_rollout(tmp_path: Path) -> None:
    """Tokenizers have tokens beyond their models' vocabularies. A tool that quotes one would else leave every seat with
    a row that no engine takes."""
    program = ECHO.replace('"1 + 2 = 3. " * 22 + "4 + 4 = "', "turns[-1]")
    config = tiny.CONFIG.model_copy(update={"environments": (written(tmp_path, program, params={"turns": 3}),)})
    tokenizer: Any = load_tokenizer(tiny.model_folder())
    end, lacking = tokenizer.convert_tokens_to_ids("<|end|>"), len(tokenizer)
    tokenizer.add_tokens(["<more>"])
    own = PoolEnvironments(config, tokenizer, (end,), lacking, tmp_path)
    spelled = [token for letter in "<more>" for token in tokenizer.encode(letter)]
    assert max(spelled) < lacking
    assert own.transcript(3, (*spelled[1:], end)).due is not None
    assert own.transcript(3, (*spelled, end)).due is None


def test_a_prompt_of_tokens_that_the_model_lacks_is_malformed() -> None:
    base = context()
    row = base.rollouts[1]
    broken = with_row(base, 1, prompt_tokens=(*row.prompt_tokens, base.environment.vocabulary))
    assert BY_NAME["schema"](base).code.is_accept
    assert BY_NAME["schema"](broken).code is Code.MALFORMED


def row(problem_seed: int, proofs: tuple[bytes, ...]) -> Rollout:
    tokens = tuple(range(40))
    return replace(
        context().rollouts[0], problem_seed=problem_seed, prompt_tokens=(1, 2, 3), output_tokens=tokens,
        logprobs=(-0.01,) * len(tokens), proofs=proofs,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("own", "other", "ambiguous"),
    [
        (((4, (9, 9)),), ((4, (9, 9)),), ()),
        (((4, (9, 9)),), ((4, (9, 8)),), (0, 1)),
        (((4, (9, 9)),), ((5, (9, 9)),), (0, 1)),
        (((4, (9, 9)),), (), (0, 1)),
        (((31, (9,)),), ((31, (8,)),), (0, 1)),
        (((32, (9,)),), ((32, (8,)),), ()),
    ],
)
def test_one_proof_among_other_replies_is_ambiguous(own: Inserted, other: Inserted, ambiguous: tuple[int, ...]) -> None:
    """Two boxes' problems may have one prompt and one text: only what the tool said makes their activations differ. A
    reply after a chunk's 32nd token is read by none of its rows."""
    first = proof(random.Random(1))
    rows = [row(1, (first, proof(random.Random(2)))), row(2, (first, proof(random.Random(3))))]
    assert repeats(rows, [own, other]).ambiguous == ambiguous


def test_rows_with_another_tools_answer_are_prefilled_whatever_the_lot_says() -> None:
    """Proofs and text of one row handed in for another problem of the same prompt, whose boxes hold other numbers."""
    config = tiny.CONFIG.model_copy(
        update={
            "environments": (EnvironmentConfig(name="lookup", params={"boxes": 2}),),
            "model": tiny.CONFIG.model.model_copy(update={"answer_after": ""}),
            "work": tiny.CONFIG.work.model_copy(update={"max_new_tokens": 40, "targets": ()}),
        }
    )
    own = PoolEnvironments.of(config, tiny.model_folder())
    made = made_up(config, own, 40)
    call = tuple(load_tokenizer(tiny.model_folder()).encode("[a]"))
    text = (*call, own.eos_ids[0], *made.rollouts[0].output_tokens[4:])
    rows: list[Rollout] = []
    for one in made.rollouts:
        score = own.score(one.problem_seed, one.target_length, text)
        rows.append(replace(one, **vars(score), output_tokens=text, proofs=rows[0].proofs if rows else one.proofs))
    assert len({one.prompt_tokens for one in rows}) == 1
    forged = producer_of(config, own).seal(WORK, rows)
    verdict = judge(tiny.facts(WORK, forged, audit_rate=0), forged.data, config, own, tiny.engine(1))
    assert len(verdict.audited) > 1
    assert not verdict.code.is_accept
