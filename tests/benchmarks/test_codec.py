"""The codec's recordings: what a kill costs them, and what their journals add up to."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks import codec
from benchmarks.codec import figures, summary
from benchmarks.codec_slices import JOURNAL
from protocol.files import write_atomic
from trainer.records import read_records, write_records

SMALL = """
import sys
from pathlib import Path
import benchmarks.codec_slices as slices
import benchmarks.codec_steps as steps
slices.EVERY = 2
steps.SHAPE = {"heads": 2, "kv_heads": 1, "intermediate": 256}
slices.measure_steps(Path(sys.argv[1]), "muon", 1e-4, int(sys.argv[2]), 600.0)
"""


def begin(folder: Path, last: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", SMALL, str(folder), str(last)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def finish(folder: Path, last: int) -> str:
    """What it wrote to standard error, which is nothing unless it failed."""
    process = begin(folder, last)
    _, said = process.communicate(timeout=300)
    return said if process.returncode else ""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recordings") / "whole"
    assert finish(folder, 6) == ""
    return folder


def test_whole_runs_outlive_their_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "KEPT", tmp_path / "kept")
    lines = [{"step": number} for number in range(1, 4)]
    for name, count in (("whole", 3), ("begun", 2)):
        (tmp_path / name).mkdir()
        write_records(tmp_path / name / JOURNAL, lines[:count])
        codec._keep(tmp_path / name, 3)
    codec._bring_back(tmp_path / "new", ["whole", "begun", "unknown"])
    assert read_records(tmp_path / "new" / "whole" / JOURNAL) == lines
    assert not (tmp_path / "new" / "begun").exists()
    write_records(tmp_path / "new" / "whole" / JOURNAL, [*lines, {"step": 4}])
    codec._bring_back(tmp_path / "new", ["whole"])
    assert len(read_records(tmp_path / "new" / "whole" / JOURNAL)) == 4, "what went further is not set back"


@pytest.mark.slow
def test_a_recording_that_was_killed_goes_on_with_the_bits_of_one_that_was_not(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    process, end = begin(folder, 500), time.monotonic() + 300
    while len(read_records(folder / JOURNAL)) < 3 and process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    killed_at = len(read_records(folder / JOURNAL))
    assert 3 <= killed_at < 500
    assert finish(folder, killed_at + 3) == ""
    lines, undisturbed = read_records(folder / JOURNAL), read_records(whole / JOURNAL)
    assert [line["step"] for line in lines] == list(range(1, killed_at + 4))
    assert len({line["digest"] for line in undisturbed}) == 6
    for key in ("digest", "delta", "entropy", "pulse", "tokens"):
        assert [line[key] for line in lines[:6]] == [line[key] for line in undisturbed][: len(lines)]


def test_a_step_that_comes_out_differently_is_refused(whole: Path, tmp_path: Path) -> None:
    lines = read_records(whole / JOURNAL)
    write_atomic(whole / JOURNAL, "".join(json.dumps(line | {"digest": "00" * 32}) + "\n" for line in lines).encode())
    said = finish(whole, 8)
    assert f"step 6 came out as {lines[-1]['digest']}, not as {'00' * 32}" in said


def line(step: int, delta: int, entropy: int, **more: object) -> dict[str, object]:
    fixed = {"full": 1000, "pulse": 4 * delta, "changed": 5, "tokens": 10, "train_cpu": 1.0, "measure_cpu": 0.5}
    return {"step": step, "delta": delta, "entropy": entropy, **fixed, **more}


def test_figures_are_means_of_ratios_and_of_the_worse_optimizer() -> None:
    timed = {"cpu": {"encode": 1e-6, "decode": 2e-6, "decode_hash": 4e-6}, "load": 3.0}
    found = figures([line(1, 10, 8), line(2, 50, 40, **timed)])
    assert (found["steps"], found["ratios"], found["entropy"], found["pulse"]) == (2, 60.0, 75.0, 15.0)
    assert (found["all_together"], found["worst"], found["largest"], found["seconds"]) == (33.33, 20.0, 0.05, 3)
    assert (found["encode_gb_s"], found["decode_gb_s"], found["load"]) == (1.0, 0.5, 3.0)
    runs = {"adamw-1e-6": found, "muon-1e-6": figures([line(1, 20, 19)]), "adamw-1e-5": figures([])}
    together = summary(runs)
    assert (together["ratios"], together["encode_gb_s"]) == ({"1e-6": 50.0}, {"1e-6": 1.0})
    assert together["steps"] == {"adamw-1e-6": 2, "muon-1e-6": 1, "adamw-1e-5": 0}
