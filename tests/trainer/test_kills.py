"""kill -9 of ranks at random moments, and runs that go on with another number of ranks."""

import pytest

from benchmarks.resume import run


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_twenty_kills_change_no_bit_and_train_no_file_twice() -> None:
    found = run(quick=False, progress=print)
    assert found["kills"] == 20
    assert found["bit_equal"]
    assert found["repeated"] == 0
    assert set(found["ranks"]) == {"2->1", "2->4", "1->2", "4->2"}
    assert max(found["ranks"].values()) < 1e-5
