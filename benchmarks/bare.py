"""Rollouts as the validator's `measure` reads them, without the task, chain and file that belong to them."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from engines.base import Completion, Request
from protocol.config import PoolConfig
from protocol.rollouts.schema import Rollout
from protocol.seeds import Work
from validator.context import CheckContext


def bare_rollout(slot: int, sample: int, asked: Request, done: Completion) -> Rollout:
    """A rollout without problem and score."""
    scores = (0.0, 0.0, 0.0)
    return Rollout(slot, sample, 0, 0, asked.prompt, done.tokens, done.finish, done.logprobs, *scores, done.proofs)


@dataclass(frozen=True)
class BareContext(CheckContext):
    """A file of which `rows` are prefilled, whatever sample a chain would draw."""

    rows: Sequence[int] = ()

    @property
    def audited(self) -> list[int]:
        return list(self.rows)


def bare_case(
    work: Work, config: PoolConfig, eos_ids: tuple[int, ...], rollouts: Sequence[Rollout], rows: Sequence[int]
) -> BareContext:
    """A file with only what `measure` reads."""
    facts, environment = SimpleNamespace(work=work), SimpleNamespace(eos_ids=eos_ids)
    bare: Any = (facts, config, environment, b"", None, tuple(rollouts), None, rows)
    return BareContext(*bare)
