"""Are the chosen tokens as probable as samples of this model ought to be?

Text of another model surprises this one; greedy text is too dull. Both figures are logarithms of e-values
(validator/measurements.py): under honest sampling the probability that one reaches x is at most exp(−x), whatever the
text.
"""

from protocol.verdict import Code, Finding
from validator.checks.base import Check, Cost, by_threshold
from validator.context import CheckContext


def judge(case: CheckContext) -> Finding:
    checks = case.config.checks
    measured = {
        "surprise": (sum(measurements.surprise for measurements in case.measured), checks.distribution_nats_reject),
        "dullness": (sum(measurements.dullness for measurements in case.measured), checks.distribution_nats_reject),
    }
    tokens = sum(len(measurements.gaps) for measurements in case.measured)
    return by_threshold("distribution", Code.REJECT_SAMPLING, checks.unsure_band, measured, tokens=tokens)


CHECK = Check("distribution", Code.REJECT_SAMPLING, Cost.PREFILL, judge)
