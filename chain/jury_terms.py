"""What a juror gets for judging several files, and how long it has (`JuryTerms.sol`). Pure."""

from chain.records import Terms
from protocol.verdict import LANE


def jury_fee(terms: Terms, files: int) -> int:
    """Grains a juror: the jury's fee for the first of `files` files, a committee's for every further one."""
    return terms.juryFee + (files - 1) * terms.fee


def jury_commit_window(terms: Terms, files: int) -> int:
    """Seconds from the draw: the jury's window for the first file, a committee's for every further sixteen begun."""
    return terms.juryCommitWindow + -(-(files - 1) // LANE) * terms.commitWindow
