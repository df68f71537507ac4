"""What a juror gets for judging several files, and how long it has (`JuryTerms.sol`). Pure."""

from chain.records import Terms
from protocol.verdict import LANE


def jury_fee(terms: Terms, files: int) -> int:
    """Grains a juror: the jury's fee for the first of `files` files, a committee's for every further one."""
    return terms.juryFee + (files - 1) * terms.fee


def jury_commit_window(terms: Terms, files: int) -> int:
    """Seconds from the draw: the jury's window for the first file, a committee's for every further sixteen begun."""
    return terms.juryCommitWindow + further_lanes(files) * terms.commitWindow


def further_lanes(files: int) -> int:
    """Beside the first of `files` files, as many lanes as are begun by the others."""
    return -(-max(0, files - 1) // LANE)
