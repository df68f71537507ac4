"""Bounds that the reader of rollout files cannot know: the vocabulary, and the meaning of every number."""

from protocol.verdict import Code, Finding
from validator.checks.base import accept, refuse
from validator.context import CheckContext

MAX_LOGPROB = 1e-3
"""A logarithm of a probability may exceed 0 by rounding only."""


def judge(context: CheckContext) -> Finding:
    vocabulary = context.environment.vocabulary
    for number, rollout in enumerate(context.rollouts):
        if max(max(rollout.prompt_tokens), max(rollout.output_tokens)) >= vocabulary:
            return refuse("schema", Code.MALFORMED, f"row {number}: a token outside the vocabulary", row=number)
        if max(rollout.logprobs) > MAX_LOGPROB:
            return refuse("schema", Code.MALFORMED, f"row {number}: a log-probability above 0", row=number)
    return accept("schema", rows=len(context.rollouts), bytes=len(context.data))
