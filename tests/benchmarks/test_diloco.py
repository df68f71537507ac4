"""Runs over several sites: what a kill costs them, what their bytes and losses add up to, and how links are used."""

import signal
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from benchmarks.diloco import all_fetched, reduced, summary
from benchmarks.diloco_links import PARAMETERS, RING_SECONDS, Load, SiteLine, line_rate, load, utilisation
from benchmarks.diloco_sites import SITES
from benchmarks.diloco_text import END, HELD_OUT, PackageText, SiteStreams
from protocol.sites.traffic import all_fetch, reduced_fetch
from trainer.state.records import read_records

SMALL = """
import sys, time
from pathlib import Path
import benchmarks.diloco as diloco
from benchmarks.diloco_sites import SITES
from benchmarks.diloco_text import PackageText
from benchmarks.diloco_training import Scale, sites_config
diloco.KEEP_SECONDS = 0.0
scale = Scale(128, 1, 128, 1, 16, warmup=2, last=int(sys.argv[2]), every=2, held_out=4)
text = PackageText("made up", tuple(b"%d squared is %d. " % (n, n * n) * 4 for n in range(400)))
name, mode = ("dp", None) if len(sys.argv) < 4 else (sys.argv[3], sites_config(2, sys.argv[3]))
diloco.recorded(Path(sys.argv[1]) / "7", name, mode, scale, text, time.monotonic() + 250)
"""


def begin(folder: Path, last: int, *mode: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", SMALL, str(folder), str(last), *mode]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def finish(folder: Path, last: int, *mode: str) -> list[dict[str, Any]]:
    _, said = (process := begin(folder, last, *mode)).communicate(timeout=280)
    assert process.returncode == 0, said
    return read_records(folder / "7" / (mode or ("dp",))[0] / "journal.jsonl")


def told(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what differs from run to run."""
    return [{key: value for key, value in line.items() if key != "cpu"} for line in lines]


@pytest.mark.timeout(900)
def test_a_run_that_was_killed_goes_on_with_the_bits_of_one_that_was_not(tmp_path: Path) -> None:
    mode = "sparse"  # in which a site keeps most from step to step
    whole = finish(tmp_path / "whole", 10, mode)
    assert [line["step"] for line in whole] == [4, 6, 8, 10]
    journal = tmp_path / "killed" / "7" / mode / "journal.jsonl"
    process, end = begin(tmp_path / "killed", 400, mode), time.monotonic() + 250
    while len(read_records(journal)) < 2 and process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    killed_at = read_records(journal)[-1]["step"]
    assert 6 <= killed_at < 400
    lines = finish(tmp_path / "killed", killed_at + 2, mode)
    assert [line["step"] for line in lines] == list(range(4, killed_at + 3, 2))
    common = min(len(lines), len(whole))
    assert told(lines)[:common] == told(whole)[:common]
    assert len({line["digest"] for line in whole}) == len(whole)


def test_what_is_held_out_is_dealt_to_nobody_and_all_else_to_exactly_one() -> None:
    text = PackageText("made up", tuple(b"document %d" % number for number in range(500)))
    streams = SiteStreams(text, SITES, 3, 8)
    dealt = [bytes(one).split(bytes([END]))[:-1] for one in streams.dealt]
    kept = bytes(streams.kept).split(bytes([END]))[:-1]
    assert kept == list(text.documents[::HELD_OUT])
    assert sorted(kept + [one for site in dealt for one in site]) == sorted(text.documents)
    assert min(map(len, dealt)) > 60
    again = SiteStreams(text, SITES, 3, 8)
    assert (streams.batch(1, 5, 4) == again.batch(1, 5, 4)).all()
    assert (streams.batch(1, 5, 4) != again.batch(1, 6, 4)).any()
    assert (streams.batch(1, 5, 4) != again.batch(2, 5, 4)).any()


def outer(payload: int, means: int) -> dict[str, Any]:
    """Four sites alike, 1,000 elements, H = 100."""
    each = dict.fromkeys("abcd", payload)
    found = {"size": 1000, "inner_steps": 100, "payload": each, "document": dict.fromkeys("abcd", 0)}
    return found | {"means": [means] * 4, "excluded": {}, "sent": 1.0}


def test_bytes_are_those_of_the_formulas() -> None:
    assert all_fetched(outer(1000, 250)) == all_fetch(1000, 4, Fraction(1)).total
    assert reduced(outer(1000, 250)) == reduced_fetch(1000, 4, Fraction(1)).total


def journal(last: int, loss: float, **more: Any) -> list[dict[str, Any]]:
    return [{"step": last, "loss": loss, "cpu": 1.0, **more}]


def test_gaps_are_of_the_worst_seed_and_of_runs_that_are_whole() -> None:
    sites = {"outer": outer(1000, 250)}
    journals = {
        (1, "dp"): journal(600, 2.0),
        (2, "dp"): journal(600, 1.0),
        (1, "h100"): journal(600, 2.02, **sites),
        (2, "h100"): journal(600, 0.98, **sites),
        (1, "h50"): journal(500, 9.9, **sites),
        (1, "h100-int8"): journal(600, 2.0, **sites),
        (1, "h100-int8-quantile"): journal(600, 2.03, **sites),
        (2, "h10"): [],
    }
    found = summary(journals, 600, (10, 50, 100))
    assert found["loss_gap"] == {"10": None, "50": None, "100": 0.01}
    assert found["gaps_by_seed"]["100"] == {"1": 0.01, "2": -0.02}
    assert found["int8_gap"] == pytest.approx(1 - 2.0 / 2.02, abs=1e-5)
    assert found["bytes_ratio"] == {"int8": 300.0, "sparse": None}
    assert found["bytes_ratio_reducing"] == {"int8": 436.4, "sparse": None}


def test_the_simulation_gives_what_a_site_waits_for() -> None:
    """A line of a byte a second, without delays: training, the longer of both directions, and the computing."""
    lines = [SiteLine(1.0, 0.0)] * 3
    assert utilisation(lines, 100.0, Load(10.0, 40.0, 3.0, 7.0)) == pytest.approx(100 / 150)
    assert utilisation(lines, 100.0, Load(60.0, 40.0, 3.0, 7.0)) == pytest.approx(100 / 170)
    assert utilisation(lines, 100.0, Load(10.0, 40.0, 3.0, 7.0), overlapped=20.0) == pytest.approx(420 / 540)
    assert utilisation(lines, 100.0, Load(10.0, 40.0, 0.0, 7.0), overlapped=50.0) == pytest.approx(1.0)
    settled_first = Load(10.0, 40.0, 3.0, 7.0, settling=50.0)
    assert utilisation(lines, 100.0, settled_first) == pytest.approx(100 / (103 + 10 + 57 + 47))
    assert utilisation(lines, 100.0, settled_first, overlapped=90.0) == pytest.approx(490 / (4 * (103 + 90 + 47) - 270))
    slow = [*lines, SiteLine(0.5, 0.0)]
    assert utilisation(slow, 100.0, Load(10.0, 40.0, 3.0, 7.0)) == pytest.approx(100 / 190)
    with pytest.raises(AssertionError, match="within the window"):
        utilisation(lines, 100.0, Load(60.0, 40.0, 3.0, 7.0), window=50)


def test_a_ring_of_bytes_takes_the_time_that_its_line_was_reckoned_from() -> None:
    for seconds in RING_SECONDS.values():
        sent = 2 * 7 / 8 * PARAMETERS
        assert sent / line_rate(seconds) == pytest.approx(seconds)
    every, parts = (load(way, 8e9, 8, 1.0) for way in ("all fetch all", "each reduces a shard"))
    assert (every.upload + every.download, every.download) == (64e9, 56e9)
    assert parts.upload + parts.download == float(reduced_fetch(8 * 10**9, 8, Fraction(1)).total)
