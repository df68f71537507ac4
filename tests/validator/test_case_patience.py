"""For how long a jury of a node case asks for files that are missing, and judges."""

from types import SimpleNamespace
from typing import Any

from chain.indexer.records import MAX_WINDOW, further_lanes, jury_commit_window
from validator.pools import PoolCollaborators


def test_the_first_file_has_a_jurys_time_and_every_further_lane_a_committees() -> None:
    """As the window in which they vote: bytes that come in the second hour of seventeen are in time."""
    assert [further_lanes(files) for files in (0, 1, 2, 17, 18, 33, 34, 256)] == [0, 0, 1, 1, 2, 2, 3, 16]
    nobody: Any = None
    pool = PoolCollaborators(nobody, nobody, nobody, nobody, patience=10.0, jury_patience=25.0)
    assert [pool.jury_patience_for(files) for files in (1, 2, 17, 18, 256)] == [25.0, 35.0, 35.0, 45.0, 185.0]


def test_no_case_is_judged_for_longer_than_a_window_may_last() -> None:
    """A stake is held meanwhile; as `JuryTerms.commitWindow` has it."""
    day = 24 * 3600
    terms: Any = SimpleNamespace(juryCommitWindow=day, commitWindow=day)
    assert [jury_commit_window(terms, files) for files in (1, 17, 256)] == [day, 2 * day, 17 * day]
    terms.commitWindow = MAX_WINDOW
    assert [jury_commit_window(terms, files) for files in (1, 17, 256)] == [day, 30 * day, 30 * day]
