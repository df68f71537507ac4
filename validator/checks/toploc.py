"""TOPLOC: claimed activations against the verifier's own, by the worst chunk and by the mean over all audited chunks.

The mean is the sharper instrument: a small change of the weights moves every chunk a little.
"""

from protocol.verdict import Code, Finding
from validator.checks.base import by_threshold, largest
from validator.context import CheckContext


def judge(context: CheckContext) -> Finding:
    checks = context.config.checks
    mismatches = [count for row in context.measured for count in row.mismatches]
    mantissas = [error for row in context.measured for error in row.mantissas]
    chunks = len(mismatches)
    # One value next to a power of two is no rate: in a short file a single mismatch never decides by the mean.
    rate = max(0, sum(mismatches) - 1) / chunks
    measured = {
        "mismatches_mean": (rate, checks.exponent_mismatches_reject),
        "mismatches_largest": (float(max(mismatches)), checks.exponent_mismatches_chunk_reject),
        "mantissa_mean": (sum(mantissas) / chunks, checks.mantissa_mean_reject),
        "mantissa_largest": (largest(mantissas), checks.mantissa_mean_chunk_reject),
    }
    return by_threshold("toploc", Code.REJECT_WEIGHTS, checks.unsure_band, measured, chunks=chunks)
