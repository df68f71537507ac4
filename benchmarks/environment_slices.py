"""Slices of a long comparison of environments: what is done, what comes next, what the slices of a type add up to."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.journal import append, resumed
from environments.checking import EnvironmentCheck

STAGES = (20, 100, 400, 1_600, 5_000)
"""All types reach one before any goes on to the next."""
SLICE_SECONDS, LEAST = 90.0, 20
_TOLD = 5


class TypeSlices:
    """Kept as lines of the file `journal`; a line that a kill cut off is dropped."""

    def __init__(self, journal: Path) -> None:
        self._journal, self._found = journal, dict[str, EnvironmentCheck]()
        for told in resumed(journal):
            self._add(told.pop("type"), EnvironmentCheck(**told | {"findings": tuple(told["findings"])}))

    def keep(self, name: str, found: EnvironmentCheck) -> None:
        append(self._journal, {"type": name, **asdict(found)})
        self._add(name, found)

    def of(self, name: str) -> EnvironmentCheck:
        """All slices of a type together."""
        return self._found.get(name) or EnvironmentCheck(name, 0, 0, 0, 0, 0, 0, 0, 0.0, 0.0, 0.0, ())

    def next(self, names: Sequence[str], count: int) -> tuple[str, int, int] | None:
        """The type, and its problems from the first to before the last, that come next: of those that are behind the
        quickest one. A slice is some ninety seconds."""
        for stage in (*(one for one in STAGES if one < count), count):
            behind = [name for name in names if self.of(name).problems < stage]
            if behind:
                name = min(behind, key=self._problem_seconds)
                first = self.of(name).problems
                fitting = int(SLICE_SECONDS / self._problem_seconds(name)) if first else LEAST
                return name, first, min(stage, first + max(LEAST, fitting))
        return None

    def _problem_seconds(self, name: str) -> float:
        """Of making and scoring a problem in both processes, by what was measured."""
        one = self.of(name)
        return 2e-3 * (one.problem_ms + one.score_ms * one.scores / max(1, one.problems)) or 1e-4

    def _add(self, name: str, new: EnvironmentCheck) -> None:
        old = self.of(name)
        problems = old.problems + new.problems
        share = new.problems / max(1, problems)
        summed = ("problems", "scores", "disagreements", "references", "solved", "hostile", "won")
        self._found[name] = replace(
            new,
            **{one: getattr(old, one) + getattr(new, one) for one in summed},
            problem_ms=old.problem_ms + share * (new.problem_ms - old.problem_ms),
            score_ms=old.score_ms + share * (new.score_ms - old.score_ms),
            slowest_ms=max(old.slowest_ms, new.slowest_ms),
            findings=(*old.findings, *new.findings)[:_TOLD],
        )
