"""Claimed log-probabilities against the verifier's own: the largest difference, and its mean over the audited rows."""

from protocol.verdict import Code, Finding
from validator.checks.base import by_threshold, largest
from validator.context import CheckContext


def judge(context: CheckContext) -> Finding:
    checks = context.config.checks
    differences = [
        abs(claimed - own)
        for row in context.measured
        for claimed, own in zip(context.rollouts[row.row].logprobs, row.logprobs, strict=True)
    ]
    measured = {
        "largest": (largest(differences), checks.logprob_error_reject),
        "mean": (sum(differences) / len(differences), checks.logprob_mean_reject),
    }
    return by_threshold("logprobs", Code.REJECT_WEIGHTS, checks.unsure_band, measured, tokens=len(differences))
