"""Copied work within a file: the same improbable text handed in for two samples.

The noise of every completion is keyed by node, step, counter, slot and sample, so two rows are independent samples:
they agree with probability exp(−surprisal). Honest rows may well repeat; samples of an easy problem are often equal.
A proof under several texts is no fraud by itself, since a completion that loops has chunk after chunk of equal
activations: such rows are prefilled whatever the audit sample says (validator/context.py), and judged by what is found.
Copies of other submissions are found by the sampling check (docs/verification.md, Duplicates); a verdict depends on
the chain and the file alone.
"""

from protocol.verdict import Code, Finding
from validator.checks.base import accept, refuse
from validator.context import CheckContext


def judge(context: CheckContext) -> Finding:
    found = context.repeats
    if found.copied:
        row, first = found.copied[0]
        note = f"row {row} repeats the text of row {first}, too improbable for chance"
        return refuse("duplicates", Code.REJECT_DUPLICATE, note, row=row, first=first, copied=len(found.copied))
    return accept("duplicates", ambiguous=list(found.ambiguous))
