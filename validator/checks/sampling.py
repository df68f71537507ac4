"""Every token is the one that the seeded noise picks: the largest score gap, and the share of tokens that miss.

A rounding difference makes a few near-ties go the other way with a gap near 0; a token chosen by other means loses by
about as much as the noise varies.
"""

from protocol.verdict import Code, Finding
from validator.checks.base import by_threshold, largest
from validator.context import CheckContext


def judge(context: CheckContext) -> Finding:
    checks = context.config.checks
    gaps = [gap for row in context.measured for gap in row.gaps]
    misses = sum(not gap <= 0 for gap in gaps)
    # One near-tie in a short file is no rate: a single miss never decides by its share.
    rate = max(0, misses - 1) / len(gaps)
    measured = {
        "gap": (largest(gaps), checks.sampling_gap_reject),
        "miss_rate": (rate, checks.sampling_miss_rate_reject),
    }
    return by_threshold("sampling", Code.REJECT_SAMPLING, checks.unsure_band, measured, tokens=len(gaps), misses=misses)
