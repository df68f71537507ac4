"""The header against the chain: whose file this is, and from which randomness and weights.

A wrong network, step seed or manifest is malformed, since a reorganisation changes the last two under an honest worker.
Another node, step or counter never happens to an honest one: the contract orders counters and binds the rest.
"""

from protocol.verdict import Code, Finding
from validator.checks.base import Check, Cost, accept, refuse
from validator.context import CheckContext


def judge(case: CheckContext) -> Finding:
    header, facts = case.header, case.facts
    for name in ("node", "step", "counter"):
        said, known = getattr(header, name), getattr(facts, name)
        if said != known:
            note = f"the file is of {name} {said}, the submission of {known}"
            return refuse("header", Code.REJECT_ASSIGNMENT, note, field=name)
    for name in ("chain_id", "pools", "pool", "step_seed", "manifest"):
        if getattr(header, name) != getattr(facts, name):
            return refuse("header", Code.MALFORMED, f"{name} is not the chain's", field=name)
    return accept("header", engine=header.engine, dtype=header.dtype, device=header.device)


CHECK = Check("header", Code.REJECT_ASSIGNMENT, Cost.FILE, judge)
