"""Prompt tokens derived anew from the assigned problem: nothing added, cut or replaced."""

from functools import cache

from protocol.verdict import Code, Finding
from validator.checks.base import accept, refuse
from validator.context import CheckContext


def judge(context: CheckContext) -> Finding:
    prompt = cache(context.environment.prompt)  # a problem's samples have the same
    wrong = [
        number
        for number, rollout in enumerate(context.rollouts)
        if rollout.prompt_tokens != prompt(rollout.problem_seed, rollout.target_length)
    ]
    if wrong:
        note = f"{len(wrong)} prompts are not the problem's"
        return refuse("prompts", Code.REJECT_ASSIGNMENT, note, rows=wrong)
    return accept("prompts", prompts=len(context.rollouts))
