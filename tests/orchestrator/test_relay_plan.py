"""Which files go into which lane."""

import pytest

from orchestrator.db import SubmissionRow
from orchestrator.relay import LANES_AT_ONCE, MOST_PAUSE, RETRY_SECONDS, plan
from protocol.verdict import LANE

NOW, PATIENCE = 1000.0, 10.0


def files(
    node: str, *counters: int, received: float = 0.0, tried: float = 0.0, reason: str = ""
) -> list[SubmissionRow]:
    same = {"node": node, "received": received, "tried": tried, "reason": reason}
    return [SubmissionRow(counter=counter, **same) for counter in counters]


def planned(waiting: list[SubmissionRow], now: float = NOW, **counters: int) -> list[list[tuple[str, int]]]:
    lanes = plan(waiting, lambda node: counters.get(node, 0), now, PATIENCE)
    return [[(row.node, row.counter) for row in lane] for lane in lanes]


def test_sixteen_files_go_at_once_and_fewer_once_the_oldest_has_waited() -> None:
    fresh = [row for number in range(LANE) for row in files(f"n{number:02}", 0, received=NOW)]
    assert [len(lane) for lane in planned(fresh)] == [LANE]
    assert planned(fresh[1:]) == []
    assert [len(lane) for lane in planned(fresh[1:], NOW + PATIENCE)] == [LANE - 1]
    assert planned([*fresh[2:], *files("old", 0, received=NOW - PATIENCE)])[0][0] == ("old", 0)
    assert planned([]) == []


def test_a_nodes_files_follow_its_counter_without_a_gap_and_are_in_one_lane() -> None:
    assert planned(files("a", 4, 2, 3, 6), a=2) == [[("a", 2), ("a", 3), ("a", 4)]]
    assert planned(files("a", 3), a=2) == []
    assert planned(files("a", 0, 1), a=1) == [[("a", 1)]]
    many = [*files("a", *range(20)), *files("b", *range(20), received=1.0), *files("c", 0, received=2.0)]
    first, second, third = planned(many)
    assert first == [("a", counter) for counter in range(LANE)]
    assert second == [("b", counter) for counter in range(LANE)]
    assert third == [("c", 0)], "what does not fit waits for the next turn"


def test_a_node_that_may_not_submit_holds_up_nobody() -> None:
    lanes = plan([*files("a", 0), *files("b", 0)], {"b": 0}.get, NOW, PATIENCE)
    assert [[row.node for row in lane] for lane in lanes] == [["b"]]


def test_so_many_lanes_go_at_once() -> None:
    waiting = [row for number in range(LANE * (LANES_AT_ONCE + 1)) for row in files(f"n{number:03}", 0)]
    assert [len(lane) for lane in planned(waiting)] == [LANE] * LANES_AT_ONCE


@pytest.mark.parametrize(
    ("age", "since", "due"),
    [
        (0.0, RETRY_SECONDS - 1, False),
        (0.0, RETRY_SECONDS, True),
        (500.0, 499.0, False),
        (500.0, 500.0, True),
        (80_000.0, MOST_PAUSE - 1, False),
        (80_000.0, MOST_PAUSE, True),
    ],
)
def test_a_refused_file_is_tried_again_after_limited_pauses_that_double(age: float, since: float, due: bool) -> None:
    tried = NOW - since
    waiting = files("a", 0, received=tried - age, tried=tried, reason="refused")
    assert bool(planned([*waiting, *files("a", 1)])) == due


def test_refused_files_come_last() -> None:
    refused = files("a", 0, received=0.0, tried=10.0, reason="refused")
    assert planned([*refused, *files("b", 0, received=500.0)]) == [[("b", 0), ("a", 0)]]


def test_a_node_set_apart_shares_no_lane() -> None:
    waiting = [*files("a", 0, 1), *files("b", 0, received=1.0), *files("c", 0), *files("d", 0, received=NOW)]
    lanes = plan(waiting, lambda node: 0, NOW, PATIENCE, {"a", "c"})
    assert [[row.node for row in lane] for lane in lanes] == [["b", "d"], ["a", "a"], ["c"]]
    lanes = plan(waiting[2:], lambda node: 0, NOW, PATIENCE, {"b", "c"})
    assert [[row.node for row in lane] for lane in lanes] == [["c"], ["b"]], "the others' lane waits for more files"
