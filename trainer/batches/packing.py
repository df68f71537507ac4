"""Which sequences share a packed row, and which rank trains it when. Pure: numbers in, numbers out."""

import heapq
from collections.abc import Callable, Sequence

Plan = list[list[tuple[int, ...]]]
"""For each rank its rows in order, each the places of its sequences, longest first; an empty row is a dummy."""


def plan_rows(
    lengths: Sequence[int], capacity: int, ranks: int, work: Callable[[int], float], together: bool = True
) -> Plan:
    """Every place of `lengths` exactly once, in rows of at most `capacity` tokens (a longer sequence has its own row).

    Every rank gets equally many rows, and its k-th row costs about what the others' k-th do by `work` (of a length):
    ranks wait for one another at every row. `together` False puts each sequence in its own row.
    """
    if ranks < 1 or capacity < 1 or any(length < 1 for length in lengths):
        raise ValueError("ranks, capacity and every length must be at least 1")
    costs = [work(length) for length in lengths]
    order = sorted(range(len(lengths)), key=lambda place: (-lengths[place], place))
    rows = _fill(order, lengths, capacity) if together else [[place] for place in order]
    if together and rows:
        count = min(len(order), -(-len(rows) // ranks) * ranks)
        rows = _level(order, lengths, costs, capacity, count) or rows
    return _deal(rows, costs, ranks)


def idle_share(plan: Plan, lengths: Sequence[int], work: Callable[[int], float]) -> float:
    """Share of the ranks' time spent waiting for the slowest of each round of rows; 0 where nothing is to be done."""
    costs = [[sum(work(lengths[place]) for place in row) for row in rows] for rows in plan]
    spent = len(plan) * sum(max(round_) for round_ in zip(*costs, strict=True))
    return 1.0 - sum(map(sum, costs)) / spent if spent else 0.0


def _fill(order: Sequence[int], lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Best fit decreasing: few rows, of which nearly all are full."""
    rows: list[list[int]] = []
    free: list[tuple[int, int]] = []  # (tokens left, row), sorted
    for place in order:
        at = _first_at_least(free, lengths[place])
        if at < len(free):
            left, row = free.pop(at)
        else:
            left, row = capacity, len(rows)
            rows.append([])
        rows[row].append(place)
        left -= lengths[place]
        if left > 0:
            free.insert(_first_at_least(free, left), (left, row))
    return rows


def _first_at_least(free: Sequence[tuple[int, int]], wanted: int) -> int:
    low, high = 0, len(free)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if free[middle][0] < wanted else (low, middle)
    return low


def _level(
    order: Sequence[int], lengths: Sequence[int], costs: Sequence[float], capacity: int, count: int
) -> list[list[int]] | None:
    """The costliest first, always into the cheapest of `count` rows that has room; None where one finds no room."""
    rows: list[list[int]] = [[] for _ in range(count)]
    tokens = [0] * count
    heap = [(0.0, row) for row in range(count)]
    for place in order:
        full = []
        while heap and tokens[heap[0][1]] and tokens[heap[0][1]] + lengths[place] > capacity:
            full.append(heapq.heappop(heap))
        if not heap:
            return None
        cost, row = heapq.heappop(heap)
        rows[row].append(place)
        tokens[row] += lengths[place]
        for entry in (*full, (cost + costs[place], row)):
            heapq.heappush(heap, entry)
    return rows


def _deal(rows: list[list[int]], costs: Sequence[float], ranks: int) -> Plan:
    """Rows of like cost at the same time; within a round the costlier one to the rank that has had less."""
    cost = [sum(costs[place] for place in row) for row in rows]
    ordered = sorted(range(len(rows)), key=lambda row: (-cost[row], row))
    plan: Plan = [[] for _ in range(ranks)]
    spent = [0.0] * ranks
    for start in range(0, len(ordered), ranks):
        round_ = ordered[start : start + ranks]
        for rank, at in zip(sorted(range(ranks), key=lambda one: (spent[one], one)), range(ranks), strict=True):
            row = round_[at] if at < len(round_) else None
            plan[rank].append(() if row is None else tuple(rows[row]))
            spent[rank] += 0.0 if row is None else cost[row]
    return plan
