"""Rewards computed anew by the environment's own scorer, compared bit for bit in float32."""

from environments.pool import Score
from protocol.verdict import Code, Finding
from validator.checks.base import accept, refuse
from validator.context import CheckContext


def judge(context: CheckContext) -> Finding:
    wrong = []
    for number, rollout in enumerate(context.rollouts):
        said = Score(rollout.task_reward, rollout.length_penalty, rollout.reward)
        if said != context.environment.score(rollout.problem_seed, rollout.target_length, rollout.output_tokens):
            wrong.append(number)
    if wrong:
        first = context.environment.where(context.rollouts[wrong[0]].problem_seed)
        note = f"{len(wrong)} rewards are not the scorer's, the first in {first}"
        return refuse("rewards", Code.REJECT_REWARD, note, rows=wrong)
    mean = sum(rollout.task_reward for rollout in context.rollouts) / len(context.rollouts)
    return accept("rewards", mean_task_reward=mean)
