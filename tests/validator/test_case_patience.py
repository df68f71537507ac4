"""For how long a jury of a node case asks for files that are missing."""

from typing import Any

from chain.jury_terms import further_lanes
from validator.collaborators import PoolCollaborators


def test_the_first_file_has_a_jurys_time_and_every_further_lane_a_committees() -> None:
    """As the window in which they vote: bytes that come in the second hour of seventeen are in time."""
    assert [further_lanes(files) for files in (0, 1, 2, 17, 18, 33, 34, 256)] == [0, 0, 1, 1, 2, 2, 3, 16]
    nobody: Any = None
    pool = PoolCollaborators(nobody, nobody, nobody, nobody, patience=10.0, jury_patience=25.0)
    assert [pool.jury_patience_for(files) for files in (1, 2, 17, 18, 256)] == [25.0, 35.0, 35.0, 45.0, 185.0]
