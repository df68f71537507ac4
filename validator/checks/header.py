"""The header against the chain: whose file this is, and from which randomness and weights.

A wrong network, step seed or manifest is malformed, since a reorganisation changes the last two under an honest worker.
Another node, step or counter never happens to an honest one: the contract orders counters and binds the rest. In a pool
with a law of evidence an engine that the law does not know is malformed too, for its files would add up to nothing.
"""

from protocol.evidence.figures import engine_key
from protocol.verdict import Code, Finding
from validator.checks.base import accept, refuse
from validator.context import CheckContext


def judge(context: CheckContext) -> Finding:
    header, said, known = context.header, context.header.work, context.facts.work
    differing = said.id.differing(known.id)
    for name in ("node", "step", "counter"):
        if name in differing:
            note = f"the file is of {name} {said.id.flat()[name]}, the submission of {known.id.flat()[name]}"
            return refuse("header", Code.REJECT_ASSIGNMENT, note, field=name)
    differing += [name for name in ("step_seed", "manifest") if getattr(said, name) != getattr(known, name)]
    if differing:
        return refuse("header", Code.MALFORMED, f"{differing[0]} is not the chain's", field=differing[0])
    law, engine = context.config.evidence, engine_key(header.engine, header.dtype, header.device)
    if law is not None and (why := law.refuses(engine)):
        return refuse("header", Code.MALFORMED, why[:300], field="engine")
    return accept("header", engine=header.engine, dtype=header.dtype, device=header.device)
