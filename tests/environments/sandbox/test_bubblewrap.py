"""Full Python in bubblewrap: nothing gets out of it, and what the clock ends has no score."""

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from attacks.hostile import Hostile, hostile
from environments.errors import ScoringUnavailable
from environments.sandbox.bubblewrap import FullPython
from environments.sandbox.program import MIB, Ending, Isolation, SandboxLimits, SandboxProgram
from environments.scorers.code import score
from sandbox.policy import Mode

LIMITS = SandboxLimits(memory=128 * MIB, output=100_000)
needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="there is no bwrap on the PATH")
MARKER = f"/var/tmp/muster-hostile-marker-{os.getpid()}"


@needs_bubblewrap
def test_a_program_runs_and_the_outcome_names_what_kept_it_apart() -> None:
    outcome = FullPython()(SandboxProgram("import sys\nprint(input()[::-1], sys.platform)", stdin=b"abc\n"), LIMITS)
    assert (outcome.ending, outcome.code, outcome.stdout) == (Ending.EXITED, 0, b"cba linux\n")
    assert outcome.isolation is Isolation.BUBBLEWRAP


@needs_bubblewrap
@pytest.mark.parametrize("bad", hostile(MARKER), ids=lambda one: one.name)
def test_hostile_programs_reach_nothing_and_end(bad: Hostile) -> None:
    Path(MARKER).write_text("ours")
    try:
        outcome = None
        with suppress(ScoringUnavailable):
            outcome = FullPython(4.0)(SandboxProgram(bad.source), LIMITS)
        if outcome is not None:
            assert b"won" not in outcome.stdout
            assert len(outcome.stdout) + len(outcome.stderr) <= LIMITS.output
        assert Path(MARKER).read_text() == "ours"
    finally:
        Path(MARKER).unlink()


@needs_bubblewrap
def test_programs_are_scored_by_what_they_print() -> None:
    tests = {"test_cases": [{"input": "1 2", "output": "3"}]}
    assert score("```\nprint(sum(map(int, input().split())))\n```", tests, FullPython()) == 1.0
    assert score("```\nprint(4)\n```", tests, FullPython()) == 0.0
    with pytest.raises(ScoringUnavailable, match="ended from outside"):
        score("```\nwhile True: pass\n```", tests, FullPython(1.0))


def test_a_machine_without_bubblewrap_has_no_score(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Nothing:
        trouble: str = "`bwrap` is not on the PATH"
        accounting: bool = False

    def nothing(mode: Mode, image: str) -> Nothing:
        return Nothing()

    monkeypatch.setattr("sandbox.choose.try_mode", nothing)
    with pytest.raises(ScoringUnavailable, match="not on the PATH"):
        FullPython()(SandboxProgram("print(1)"), LIMITS)
