"""However a sharer spends the rounds that it may skip, a receiver takes no more of them than its own rounds allow."""

from hypothesis import given
from hypothesis import strategies as st

from protocol.swarm.pace import Met, allowed_until


@given(st.integers(0, 1 << 32), st.integers(0, 1 << 20), st.integers(0, 1000), st.integers(1, 1000))
def test_a_receivers_rounds_bound_anothers(first: int, met: int, rounds: int, ahead: int) -> None:
    newest = allowed_until(Met(first, met), met + rounds, ahead)
    assert newest - first == ahead * (rounds + 1)


def test_who_keeps_the_receivers_pace_is_always_taken() -> None:
    assert all(7 + number <= allowed_until(Met(7, 3), 3 + number, 1) for number in range(100))
