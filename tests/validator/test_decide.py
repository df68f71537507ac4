"""A seat's next action for every state that kills and reorganisations can leave behind."""

import pytest

from chain.indexer.records import Lane, Round, Submission
from chain.indexer.state import State
from validator import decide
from validator.decide import SeatAction, last_to_commit, member_action, settleable


def view(
    drawn: bool = True,
    committed: int = 0,
    revealed: int = 0,
    settled: bool = False,
    commit_until: int = 100,
    reveal_until: int = 200,
) -> Round:
    """A round of three members; bitmaps have bit j for member j."""
    return Round(
        0,
        seed_block=1,
        seats=(4, 5, 6) if drawn else (),
        commits={member: bytes(32) for member in range(3) if committed >> member & 1},
        reveals={member: (0, bytes(32)) for member in range(3) if revealed >> member & 1},
        settled=settled,
        commit_until=commit_until,
        reveal_until=reveal_until,
    )


@pytest.mark.parametrize(
    ("seen", "ready", "matches", "now", "expected"),
    [
        (view(drawn=False, commit_until=0, reveal_until=0), False, False, 50, SeatAction.JUDGE),
        (view(drawn=False, commit_until=0, reveal_until=0), True, False, 50, SeatAction.COMMIT),
        (view(), False, False, 50, SeatAction.JUDGE),
        (view(), True, False, 50, SeatAction.COMMIT),
        (view(), True, False, 100, SeatAction.DONE),
        (view(committed=0b010), True, True, 50, SeatAction.WAIT),
        (view(committed=0b111), True, True, 50, SeatAction.REVEAL),
        (view(committed=0b010), True, True, 100, SeatAction.REVEAL),
        (view(committed=0b010), True, False, 100, SeatAction.LOST),
        (view(committed=0b010), True, True, 200, SeatAction.DONE),
        (view(committed=0b111, revealed=0b010), True, True, 150, SeatAction.WAIT),
        (view(settled=True), True, True, 150, SeatAction.DONE),
        # Killed between commit and reveal, it reveals the same ballot.
        (view(committed=0b111), True, True, 99, SeatAction.REVEAL),
        # A reorganisation dropped the commitment; another changed the seed.
        (view(committed=0b101), True, False, 99, SeatAction.COMMIT),
        (view(), False, False, 99, SeatAction.JUDGE),
    ],
)
def test_actions_of_member_one(seen: Round, ready: bool, matches: bool, now: int, expected: SeatAction) -> None:
    assert member_action(seen, 1, ready, matches, now) is expected


@pytest.mark.parametrize(
    ("seen", "now", "expected"),
    [
        (view(revealed=0b111), 50, True),
        (view(committed=0b111, revealed=0b011), 199, False),
        (view(committed=0b111, revealed=0b011), 200, True),
        (view(committed=0b011, revealed=0b011), 99, False),
        (view(committed=0b011, revealed=0b011), 100, True),
        (view(), 99, False),
        (view(), 100, True),
        (view(revealed=0b111, settled=True), 300, False),
        (view(drawn=False), 300, False),
    ],
)
def test_settleable(seen: Round, now: int, expected: bool) -> None:
    assert settleable(seen, now) is expected


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (view(drawn=False), False),
        (view(committed=0b001), False),
        (view(committed=0b011), False),
        (view(committed=0b101), True),
        (view(committed=0b111), False),
    ],
)
def test_last_to_commit(seen: Round, expected: bool) -> None:
    assert last_to_commit(seen, 1) is expected


@pytest.mark.parametrize(("first", "second", "expected"), [(1, 1, b"1"), (1, 0, b"1"), (0, 1, b"2"), (0, 0, b"")])
def test_sample_is_that_of_the_first_committee_that_was_drawn(first: int, second: int, expected: bytes) -> None:
    lane = Lane(1, 0, [])
    for number, drawn in enumerate((first, second)):
        seed = str(number + 1).encode() if drawn else b""
        lane.rounds.append(Round(number, seed_block=1, seats=(4, 5, 6) if drawn else (), seed=seed))
    state = State()
    state.lanes[1, 0] = lane
    file = Submission(1, 5, "0xn", 0, 0, 1, 1, bytes(32), bytes(32), 1, 1, "0x")
    assert decide.committee_seed(state, file) == expected
