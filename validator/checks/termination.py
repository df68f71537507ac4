"""Where completions end: at their first EOS, or at the length limit, and what `finish` says of it."""

from collections.abc import Collection

from engines.base import FINISH_EOS, FINISH_LENGTH
from protocol.rollouts.schema import Rollout
from protocol.verdict import Code, Finding
from validator.checks.base import accept, refuse
from validator.context import CheckContext


def _ends_rightly(rollout: Rollout, eos: Collection[int], limit: int) -> bool:
    body, last = rollout.output_tokens[:-1], rollout.output_tokens[-1]
    if any(token in eos for token in body):
        return False
    if last in eos:
        return rollout.finish == FINISH_EOS
    return rollout.finish == FINISH_LENGTH and len(rollout.output_tokens) == limit


def judge(context: CheckContext) -> Finding:
    eos, limit = frozenset(context.environment.eos_ids), context.config.work.max_new_tokens
    wrong = [number for number, row in enumerate(context.rollouts) if not _ends_rightly(row, eos, limit)]
    if wrong:
        note = f"{len(wrong)} completions end neither at their first EOS nor at {limit} tokens"
        return refuse("termination", Code.REJECT_TERMINATION, note, rows=wrong)
    at_limit = sum(row.finish == FINISH_LENGTH for row in context.rollouts)
    return accept("termination", at_limit=at_limit)
