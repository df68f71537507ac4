"""Where rollouts end: at the EOS after which no turn follows, or at the length limit, and what `finish` says of it.

Which turns there are follows from what was sampled: the environment's replies are made anew. So a turn too few or too
many is found in every row, audited or not. A reply other than the one that the environment gives has no place in a
file; whoever sampled after one is found by proofs and noise, as after another prompt.

No honest engine begins a rollout that its model cannot take to the length limit. A row beyond the model's context is
refused here, since nobody's prefill could judge it.
"""

from engines.base import FINISH_EOS, FINISH_LENGTH
from protocol.rollout_file.rows import Rollout
from protocol.verdict import Code, Finding
from validator.checks.base import accept, refuse
from validator.context import CheckContext


def _ends_rightly(row: Rollout, context: CheckContext) -> bool:
    transcript = context.transcript(row)
    if transcript.excess:
        return False
    replies, positions = sum(map(len, transcript.replies)), context.environment.positions
    if positions is not None and len(row.prompt_tokens) + len(row.output_tokens) + replies > positions:
        return False
    at_limit = len(row.output_tokens) == context.config.work.max_new_tokens
    if row.output_tokens[-1] in context.environment.eos_ids:
        return row.finish == FINISH_EOS and (transcript.due is None or at_limit)
    return row.finish == FINISH_LENGTH and at_limit


def judge(context: CheckContext) -> Finding:
    limit = context.config.work.max_new_tokens
    wrong = [number for number, row in enumerate(context.rollouts) if not _ends_rightly(row, context)]
    if wrong:
        note = f"{len(wrong)} rollouts end neither at the last turn's EOS nor at {limit} tokens that the model can take"
        return refuse("termination", Code.REJECT_TERMINATION, note, rows=wrong)
    at_limit = sum(row.finish == FINISH_LENGTH for row in context.rollouts)
    return accept("termination", at_limit=at_limit)
