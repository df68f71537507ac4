"""Runs over several sites: what a kill costs them, what their bytes and losses add up to, and how links are used."""

import signal
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from benchmarks import diloco, diloco_peer, diloco_plots
from benchmarks.diloco import summary
from benchmarks.diloco_links import PARAMETERS, RING_SECONDS, Load, SiteLine, line_rate, load, utilisation
from benchmarks.diloco_peer_role import _parts
from benchmarks.diloco_runs import all_fetched, keep, kept_for_all, measured, reduced
from benchmarks.diloco_sites import SITES
from benchmarks.diloco_text import END, HELD_OUT, PackageText, SiteStreams
from benchmarks.diloco_training import Scale, TrainedModel
from protocol.sites.traffic import all_fetch, reduced_fetch
from trainer.records import read_records, write_records

SMALL = """
import sys, time
from pathlib import Path
import benchmarks.diloco as diloco
from benchmarks.diloco_sites import SITES
from benchmarks.diloco_text import PackageText
from benchmarks.diloco_training import DilocoPlan, Scale, sites_config
diloco.KEEP_SECONDS = 0.0
scale = Scale(128, 1, 128, 1, 16, warmup=2, last=400, every=2, held_out=4, rising=2)
text = PackageText("made up", tuple(b"%d squared is %d. " % (n, n * n) * 4 for n in range(400)))
name, mode = ("dp", None) if len(sys.argv) < 4 else (sys.argv[3], sites_config(2, sys.argv[3]))
for folder, sites, stop in ((diloco.WARMUP, None, scale.warmup), (name, mode, int(sys.argv[2]))):
    plan = DilocoPlan(7, sites)
    diloco.advanced(Path(sys.argv[1]) / "7" / folder, plan, scale, text, time.monotonic() + 250, stop)
"""


def begin(folder: Path, stop: int, *mode: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", SMALL, str(folder), str(stop), *mode]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def finish(folder: Path, stop: int, *mode: str) -> list[dict[str, Any]]:
    _, said = (process := begin(folder, stop, *mode)).communicate(timeout=280)
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
    found = summary({key: measured(lines) for key, lines in journals.items()}, 600, (10, 50, 100))
    assert found["loss_gap"] == {"10": None, "50": None, "100": 0.01}
    assert found["gaps_by_seed"]["100"] == {"1": 0.01, "2": -0.02}
    assert found["int8_gap"] == pytest.approx(1 - 2.0 / 2.02, abs=1e-5)
    assert found["bytes_ratio"] == {"int8": 408.5, "sparse": None}
    assert found["bytes_ratio_all"] == {"int8": 300.0, "sparse": None}


TEXT = PackageText("made up", (b"one", b"two"))


class Recording:
    """In the place of `recorded`: runs end at once, but for the third, during which the machine is lost."""

    def __init__(self, last: int, dies: int = -1) -> None:
        self.last, self.dies = last, dies
        self.made: list[str] = []

    def __call__(self, folder: Path, name: str, *_: Any) -> list[dict[str, Any]]:
        if len(self.made) == self.dies:
            raise KeyboardInterrupt
        self.made.append(name)
        more = {} if name == "dp" else {"outer": outer(1000, 250)}
        return journal(self.last, 2.0 + len(self.made) / 100, **more)


def test_a_lost_machine_costs_only_what_was_in_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    lines = tmp_path / "results" / "runs.jsonl"
    lines.parent.mkdir()
    monkeypatch.setattr(diloco, "KEPT_RUNS", lines)
    monkeypatch.setattr(diloco, "FOLDER", tmp_path / "first machine")
    monkeypatch.setattr(diloco, "SEEDS", (1,))
    monkeypatch.setattr(diloco, "package_text", lambda folder: TEXT)
    monkeypatch.setattr(diloco_plots, "write", lambda runs, last: drawn.append(len(runs)))
    monkeypatch.setattr(diloco, "recorded", lost := Recording(Scale().last, 2))
    with pytest.raises(KeyboardInterrupt):
        diloco.run(False, print)
    assert [name for _, name in kept_for_all(lines)] == lost.made == ["dp", "h100"]
    assert len(lines.read_bytes()) < 4096
    with lines.open("ab") as file:
        file.write(b'{"seed": 1, "name": "h100-in')
    monkeypatch.setattr(diloco, "FOLDER", tmp_path / "second machine")
    monkeypatch.setattr(diloco, "recorded", again := Recording(Scale().last))
    found = diloco.run(False, print, resume=True)
    assert again.made == ["h100-int8", "h50", "h10", "alone", "h100-sparse", "h100-int8-quantile"]
    assert found["loss_gap"]["100"] == round(2.02 / 2.01 - 1, 5)
    assert len(kept_for_all(lines)) == 8
    assert drawn == [8]
    monkeypatch.setattr(diloco, "recorded", none := Recording(Scale().last))
    assert diloco.run(False, print, resume=True) == found
    assert none.made == []
    monkeypatch.setattr(diloco, "package_text", lambda folder: PackageText("another", (b"three",)))
    diloco.run(False, print, resume=True)
    assert len(none.made) == 8, "runs on another text are others"


def test_what_there_is_so_far_is_drawn_and_written_into_the_table(tmp_path: Path) -> None:
    page, image = tmp_path / "sites.md", tmp_path / "images" / "diloco.png"
    page.write_text(f"# Sites\n\n{diloco_plots.BEGIN}\nold\n{diloco_plots.END}\nthe rest\n")
    diloco_plots.write({}, 600, image, page)
    assert not image.exists()
    assert "old" not in page.read_text()
    sites = {"outer": outer(1000, 250)}
    runs = {
        (1, "dp"): measured(journal(300, 3.0) + journal(600, 2.0)),
        (2, "dp"): measured(journal(300, 3.0) + journal(600, 2.2)),
        (1, "h100"): measured(journal(300, 3.3, **sites) + journal(600, 2.02, **sites)),
        (2, "h100"): measured(journal(300, 3.3, **sites)),
    }
    diloco_plots.write(runs, 600, image, page)
    text = page.read_text()
    assert "| data parallelism | 2 | 2.1000 | – | – |" in text
    assert "| H = 100, float32 | 1, seed 2 at step 300 | 2.0200 | +1.00% | 300; 436 by shard means |" in text
    assert "| H = 10, float32 | 0 | – | – | – |" in text
    assert "| OpenDiLoCo, 150M, 8 replicas, H = 500 | – | 13.73 beside 13.68 (perplexity) | +0.14% | 500 |" in text
    assert "](images/diloco.png)" in text
    assert text.endswith("the rest\n")
    assert image.read_bytes()[:4] == b"\x89PNG"
    diloco_plots.write(runs, 600, image, page)
    assert page.read_text() == text
    assert diloco_plots.gaps(runs, "h100") == {
        1: {300: pytest.approx(0.1), 600: pytest.approx(0.01)},
        2: {300: pytest.approx(0.1)},
    }
    finished, journals = tmp_path / "runs.jsonl", tmp_path / "journals"
    keep(finished, 1, "dp", "plan", runs[1, "dp"])
    for name in ("dp", "h100", "warmup"):
        (journals / "1" / name).mkdir(parents=True)
        write_records(journals / "1" / name / "journal.jsonl", journal(300, 3.3))
    found = diloco_plots.so_far(finished, journals)
    assert {key: run["step"] for key, run in found.items()} == {(1, "dp"): 600, (1, "h100"): 300}
    page.write_text("# Sites")
    with pytest.raises(ValueError, match="no place for the table"):
        diloco_plots.write(runs, 600, image, page)


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
    assert parts.upload + parts.download == float(reduced_fetch(8 * 10**9, 8, Fraction(1), Fraction(1, 4)).total)


def test_torchft_is_given_the_same_model() -> None:
    weights = TrainedModel(Scale(), 1, 1).weights
    assert sum(one.size for one in weights.values()) == diloco_peer.PARAMETERS == sum(_parts(diloco_peer.PARAMETERS))
    assert len(weights) == len(_parts(diloco_peer.PARAMETERS))


def test_without_torchft_its_figure_is_null(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(diloco_peer, "PEER", tmp_path / "none")
    found = diloco_peer.run(True, print)
    assert found["torchft"] is found["utilisation"]["torchft, no delay"] is None
    assert 0 < found["utilisation"]["ours, simulated"]["all fetch all"] < 1
