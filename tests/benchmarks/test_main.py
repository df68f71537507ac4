"""The command line of the benchmarks."""

import pytest

from benchmarks.__main__ import main


def test_without_a_name_it_lists_them_and_runs_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {"faults", "trainer", "worker"} <= {line.split()[0] for line in lines}
    assert all(len(line.split()) > 3 and line[-1] in ".?" for line in lines), "a sentence says what each measures"
