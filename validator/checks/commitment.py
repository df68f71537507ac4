"""The file against its commitment on chain: Merkle root, rows, paid units. (Its SHA-256 is checked when fetched.)"""

from protocol.rollout_file.rows import commit
from protocol.verdict import Code, Finding
from validator.checks.base import accept, refuse
from validator.context import CheckContext


def judge(context: CheckContext) -> Finding:
    committed, actual = context.facts.commitment, commit(context.data, context.rollouts)
    if actual.root != committed.root:
        note = "the rows do not hash to the committed Merkle root"
        return refuse("commitment", Code.REJECT_COMMITMENT, note, root=actual.root.hex())
    if committed.units > actual.units:
        note = f"{committed.units} units were claimed for {actual.units} output tokens"
        return refuse("commitment", Code.REJECT_REWARD, note, units=actual.units)
    if committed.units < actual.units or committed.rows != actual.rows:
        note = "units or rows on chain are not those of the file"
        return refuse("commitment", Code.MALFORMED, note, units=actual.units, rows=actual.rows)
    return accept("commitment", units=actual.units, rows=actual.rows)
