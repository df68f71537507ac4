"""An early EOS: improbable by the verifier's logits, and not what the seeded noise picks.

Improbable alone is no fraud: noise picks an EOS of probability p once in 1/p times, and honest workers must not lose
their stake by it. With the noise known, the two together prove that the EOS was put there.
"""

from protocol.verdict import Code, Finding
from validator.checks.base import accept, refuse
from validator.context import CheckContext


def judge(context: CheckContext) -> Finding:
    checks = context.config.checks
    least = 1.0
    forced = []
    for row in context.measured:
        if row.eos_probability is None:
            continue
        least = min(least, row.eos_probability)
        if row.eos_probability < checks.eos_probability_min and not row.gaps[-1] < checks.sampling_gap_reject:
            forced.append(row.row)
    if forced:
        note = f"{len(forced)} completions were cut by an EOS that neither model nor noise chose"
        return refuse("eos", Code.REJECT_TERMINATION, note, rows=forced, least_probability=least)
    return accept("eos", least_probability=least)
