"""Which rows of a file are prefilled: the audit sample, drawn after the submission (docs/protocol.md, section 3)."""

from protocol.encoding import tagged_hash

AUDIT_EVERYTHING = 65536


def audit_sample(lane_seed: bytes, sequence: int, rows: int, audit_rate: int) -> list[int]:
    """Row numbers (ascending, at least one) that every member and juror prefills; `audit_rate` is in 1/65536."""
    if audit_rate >= AUDIT_EVERYTHING:
        return list(range(rows))
    always = int.from_bytes(tagged_hash("muster/audit-one/1", lane_seed, sequence), "big") % rows
    return [
        row
        for row in range(rows)
        if row == always
        or int.from_bytes(tagged_hash("muster/audit/1", lane_seed, sequence, row)[-2:], "big") < audit_rate
    ]
