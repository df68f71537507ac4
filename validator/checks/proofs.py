"""Proofs are well formed: their number, a possible modulus, coefficients of the field. Found before any arithmetic."""

from protocol.toploc.codec import MalformedProof, parse_many
from protocol.verdict import Code, Finding
from validator.checks.base import accept, refuse
from validator.context import CheckContext


def judge(context: CheckContext) -> Finding:
    for number, rollout in enumerate(context.rollouts):
        try:
            parse_many(rollout.proofs, len(rollout.output_tokens))
        except MalformedProof as error:
            return refuse("proofs", Code.REJECT_WEIGHTS, f"row {number}: {error.what}", row=number)
    return accept("proofs", proofs=sum(len(rollout.proofs) for rollout in context.rollouts))
