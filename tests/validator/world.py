"""A small pool, its tokenizer, and an honest-looking submission, for tests of single checks."""

import json
import random
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import Any

from engines.base import FINISH_EOS, FINISH_LENGTH, Completion, EngineInfo
from environments.pool import PoolEnvironments
from protocol.config import EnvironmentConfig, ModelConfig, PoolConfig, WorkConfig
from protocol.identity import PoolId, WorkId
from protocol.models import save_byte_tokenizer
from protocol.rollout_file.rows import Rollout, commit
from protocol.seeds import AUDIT_EVERYTHING, Work
from validator.judging.checks import FILE_CHECKS, PREFILL_CHECKS, CheckContext, RowMeasurements, SubmissionFacts
from worker.produce import Producer

NODE = "0x" + "11" * 20
POOLS = "0x" + "22" * 20
CONFIG = PoolConfig(
    name="test",
    model=ModelConfig(source="local", prompt_template="{question}<think>", answer_after="</think>"),
    environments=(EnvironmentConfig(name="reasoning_gym/chain_sum", params={"min_terms": 3, "max_terms": 4}),),
    work=WorkConfig(problems_per_file=3, samples_per_problem=2, max_new_tokens=40, targets=(16, 24), length_alpha=0.02),
)
EOS = 258
BY_NAME = {check.__name__.removeprefix("check_"): check for check in FILE_CHECKS + PREFILL_CHECKS}
"""Every check in the order in which they run, by the name in its finding."""


@cache
def tokenizer_folder() -> Path:
    """A folder with tokenizer and config.json, without weights: enough for an environment."""
    folder = Path(mkdtemp(prefix="muster-test-"))
    size = save_byte_tokenizer(folder, ["<think>", "</think>"])
    (folder / "config.json").write_text(json.dumps({"vocab_size": size, "eos_token_id": EOS}))
    return folder


@cache
def environment() -> PoolEnvironments:
    return PoolEnvironments.of(CONFIG, tokenizer_folder())


def proof(rng: random.Random) -> bytes:
    """A well-formed proof of nothing."""
    return b"".join(value.to_bytes(2, "big") for value in (65497, *(rng.randrange(65497) for _ in range(128))))


def producer() -> Producer:
    """A worker without a model."""
    engine: Any = SimpleNamespace(info=EngineInfo("hf", "1", "float32", "cpu"))
    made = Producer(CONFIG, engine)
    made._environment = environment()
    return made


def rollouts(work: Work, seed: int = 0) -> list[Rollout]:
    rng, plan, done = random.Random(seed), producer().plan(work), []
    for planned in plan:
        length = CONFIG.work.max_new_tokens if planned.sample else rng.randrange(10, 38)
        output = tuple(rng.randrange(256) for _ in range(length - 1)) + ((65,) if planned.sample else (EOS,))
        logprobs = tuple(-rng.random() * 8 for _ in output)
        proofs = tuple(proof(rng) for _ in range(-(-length // 32)))
        done.append(Completion(output, logprobs, FINISH_LENGTH if planned.sample else FINISH_EOS, proofs))
    return producer().score(plan, done)


def context(seed: int = 0, sequence: int = 7) -> CheckContext:
    """An honest file with perfect measurements; `seed` changes its outputs."""
    work = Work(WorkId(PoolId(31337, POOLS, 1), NODE, 3, 5), b"\x07" * 32, b"\x08" * 32)
    made = producer().seal(work, rollouts(work, seed))
    facts = SubmissionFacts(work, made.commitment, sequence, b"\x09" * 32, AUDIT_EVERYTHING)
    measured = tuple(map(perfect, range(len(made.rollouts)), made.rollouts))
    return CheckContext(facts, CONFIG, environment(), made.data, made.header, made.rollouts, measured)


def perfect(number: int, row: Rollout) -> RowMeasurements:
    count = len(row.output_tokens)
    ended = 0.9 if row.finish == FINISH_EOS else None
    chunks = len(row.proofs)
    proofs = (0,) * chunks, (0.0,) * chunks
    return RowMeasurements(number, *proofs, (0.0,) * count, row.logprobs, row.logprobs, 0.0, 0.0, ended)


def with_rows(base: CheckContext, rows: list[Rollout]) -> CheckContext:
    """The same submission, honestly committed, with other rows."""
    done = commit(base.data, rows)
    done = replace(done, sha256=base.facts.commitment.sha256)
    return replace(base, rollouts=tuple(rows), facts=replace(base.facts, commitment=done))


def with_row(base: CheckContext, number: int, **changes: object) -> CheckContext:
    rows = list(base.rollouts)
    rows[number] = replace(rows[number], **changes)  # type: ignore[arg-type]
    return with_rows(base, rows)


def with_measurements(base: CheckContext, number: int, **changes: object) -> CheckContext:
    measurements = list(base.measured)
    measurements[number] = replace(measurements[number], **changes)  # type: ignore[arg-type]
    return replace(base, measurements=tuple(measurements))
