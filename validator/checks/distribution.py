"""Are the chosen tokens as probable as samples of this model ought to be?

Text of another model surprises this one; greedy text is too dull. Both figures are logarithms of e-values
(validator/figures.py): under honest sampling the probability that one reaches x is at most exp(−x), whatever the text.
"""

from protocol.verdict import Code, Finding
from validator.case import Case
from validator.checks.base import Check, Cost, by_threshold


def judge(case: Case) -> Finding:
    checks = case.config.checks
    measured = {
        "surprise": (sum(figures.surprise for figures in case.measured), checks.distribution_nats_reject),
        "dullness": (sum(figures.dullness for figures in case.measured), checks.distribution_nats_reject),
    }
    tokens = sum(len(figures.gaps) for figures in case.measured)
    return by_threshold("distribution", Code.REJECT_SAMPLING, checks.unsure_band, measured, tokens=tokens)


CHECK = Check("distribution", Code.REJECT_SAMPLING, Cost.PREFILL, judge)
