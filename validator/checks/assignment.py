"""Problems and target lengths are those that the step seed, the node, its counter and the step's curriculum
mask assign."""

from protocol.seeds import assignments
from protocol.verdict import Code, Finding
from validator.checks.base import accept, refuse
from validator.context import CheckContext


def judge(context: CheckContext) -> Finding:
    work = context.config.work
    assigned = assignments(context.facts.work, context.config, context.environment.mask)
    wrong = [
        number
        for number, rollout in enumerate(context.rollouts)
        if (rollout.slot, rollout.sample) != divmod(number, work.samples_per_problem)
        or rollout.problem_seed != assigned[rollout.slot].problem_seed
        or rollout.target_length != assigned[rollout.slot].target_length
    ]
    if wrong or len(context.rollouts) != work.rows:
        note = f"{len(wrong)} rows are not the assigned problem or target length"
        return refuse("assignment", Code.REJECT_ASSIGNMENT, note, rows=wrong)
    return accept("assignment", problems=work.problems_per_file)
