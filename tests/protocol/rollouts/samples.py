"""Honest rollouts to start from."""

import random
from typing import Any

from protocol.identity import PoolId, WorkId
from protocol.rollouts.schema import Limits, Rollout, RolloutHeader
from protocol.seeds import Work

LIMITS = Limits(problems=4, samples=2, max_prompt_tokens=32, max_new_tokens=64)


def header(**changes: Any) -> RolloutHeader:
    fields: dict[str, Any] = {
        "chain_id": 31337,
        "pools": "0x" + "11" * 20,
        "pool": 1,
        "node": "0x" + "ab" * 20,
        "step": 3,
        "counter": 4,
        "step_seed": b"s" * 32,
        "manifest": b"m" * 32,
        "engine": "transformers 5.19.0",
        "dtype": "float32",
        "device": "cpu",
    }
    fields |= changes
    pool = PoolId(*(fields.pop(name) for name in ("chain_id", "pools", "pool")))
    work = WorkId(pool, *(fields.pop(name) for name in ("node", "step", "counter")))
    return RolloutHeader(Work(work, fields.pop("step_seed"), fields.pop("manifest")), **fields)


def rollouts(limits: Limits = LIMITS, seed: int = 0) -> list[Rollout]:
    rng = random.Random(seed)
    return [rollout(slot, sample, rng, limits) for slot in range(limits.problems) for sample in range(limits.samples)]


def rollout(slot: int, sample: int, rng: random.Random, limits: Limits = LIMITS) -> Rollout:
    output = rng.randint(1, limits.max_new_tokens)
    return Rollout(
        slot=slot,
        sample=sample,
        problem_seed=rng.getrandbits(64),
        target_length=rng.choice((0, 16, 32)),
        prompt_tokens=tuple(rng.randrange(265) for _ in range(rng.randint(1, limits.max_prompt_tokens))),
        output_tokens=tuple(rng.randrange(265) for _ in range(output)),
        finish=int(output == limits.max_new_tokens),
        logprobs=tuple(-rng.randrange(4096) / 256 for _ in range(output)),
        task_reward=1.0,
        length_penalty=0.25,
        reward=0.75,
        proofs=tuple(rng.randbytes(258) for _ in range(-(-output // 32))),
    )
