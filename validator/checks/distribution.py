"""Are the chosen tokens as probable as samples of this model ought to be?

Text of another model surprises this one; greedy text is too dull. Both measurements are logarithms of e-values
(validator/measurements.py): under honest sampling the probability that one reaches x is at most exp(−x), whatever the
text.
"""

from protocol.verdict import Code, Finding
from validator.checks.base import by_threshold
from validator.context import CheckContext


def judge(context: CheckContext) -> Finding:
    checks = context.config.checks
    measured = {
        "surprise": (sum(row.surprise for row in context.measured), checks.distribution_nats_reject),
        "dullness": (sum(row.dullness for row in context.measured), checks.distribution_nats_reject),
    }
    tokens = sum(len(row.gaps) for row in context.measured)
    return by_threshold("distribution", Code.REJECT_SAMPLING, checks.unsure_band, measured, tokens=tokens)
