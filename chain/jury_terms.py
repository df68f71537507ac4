"""What a juror gets for judging several files, and how long it has (`JuryTerms.sol`). Pure."""

from chain.records import Terms
from protocol.verdict import LANE

MAX_WINDOW = 30 * 24 * 3600
"""Seconds that any window may have (`TermsLib.MAX_WINDOW`)."""


def jury_fee(terms: Terms, files: int) -> int:
    """Grains a juror: the jury's fee for the first of `files` files, a committee's for every further one."""
    return terms.juryFee + (files - 1) * terms.fee


def jury_commit_window(terms: Terms, files: int) -> int:
    """Seconds from the draw: the jury's window for the first file, a committee's for every further sixteen begun, and
    thirty days at most."""
    return min(terms.juryCommitWindow + further_lanes(files) * terms.commitWindow, MAX_WINDOW)


def further_lanes(files: int) -> int:
    """Beside the first of `files` files, as many lanes as are begun by the others."""
    return -(-max(0, files - 1) // LANE)
