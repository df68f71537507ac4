"""A comparison in slices: every type's first problems before any type's last, nothing twice, nothing lost by a kill."""

from collections import Counter
from pathlib import Path

from benchmarks.environment_slices import TypeSlices
from environments.checking import EnvironmentCheck

COST = {"quick": 1.0, "slow": 400.0, "usual": 30.0}


def found(name: str, problems: int, differing: int = 0) -> EnvironmentCheck:
    findings = ("one differs",) * differing
    return EnvironmentCheck(
        name, problems, 8 * problems, differing, problems, problems, 0, 0, COST[name], 0.0, 9.0, findings
    )


def test_slices_cover_every_problem_once_in_stages_and_after_a_kill(tmp_path: Path) -> None:
    journal, taken, order = tmp_path / "slices.jsonl", Counter[str](), []
    slices = TypeSlices(journal)
    while turn := slices.next(list(COST), 2_000):
        name, first, last = turn
        assert first == taken[name] < last
        assert min(taken.values(), default=0) >= 20 or last <= 20
        assert last - first <= max(20, 90 / (2e-3 * COST[name]))
        taken[name] = last
        order.append(name)
        slices.keep(name, found(name, last - first, differing=first == 400))
        with journal.open("a") as stream:
            stream.write('{"type": "slow", "cut off')
        slices = TypeSlices(journal)
    assert taken == {"quick": 2_000, "slow": 2_000, "usual": 2_000}
    assert {slices.of(name).problems for name in COST} == {2_000}
    assert {slices.of(name).scores for name in COST} == {16_000}
    assert [slices.of(name).disagreements for name in COST] == [1, 1, 1]
    assert slices.of("slow").problem_ms == 400.0
    assert order.index("slow") < order.index("quick", 3)
