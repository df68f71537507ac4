"""The rehearsal is compared with seats that really judge: files of a tiny model, fetched by HTTP, kept in journals."""

import json
import shutil
from pathlib import Path

import pytest

from benchmarks.journal import lines
from benchmarks.rehearsal import prepare, served, summary
from benchmarks.rehearsal_machines import BASE, COARSE, FLOAT32, QUICK_PLACES, Machine, RehearsalCase, case, policy
from benchmarks.rehearsal_roles import Doing, journal
from protocol.verdict import Code
from runtime.process import EngineConfig
from tests.validator import tiny

ENGINE = EngineConfig(batch=8)
MACHINES = (
    Machine("honest", FLOAT32, ENGINE, 2),
    Machine("wrong", FLOAT32, ENGINE, 2, "weights-noise", 0.02),
    Machine("wrong", FLOAT32, ENGINE.model_copy(update={"dtype": "bfloat16"}), 1),
)
CASE = RehearsalCase({FLOAT32: tiny.CONFIG}, MACHINES, QUICK_PLACES)
MAKING, SEAT = (journal(Path(), place.name, place.does[0]).name for place in QUICK_PLACES)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rehearsal")
    prepare(folder, CASE, resume=True)
    for number, name in enumerate((BASE, policy(COARSE))):
        shutil.copytree(tiny.model_folder(number), folder / "policies" / name)
    work(folder)
    return folder


def work(folder: Path) -> None:
    with served(folder) as url:
        for place in QUICK_PLACES:
            Doing(CASE, folder, place, CASE.files).run(url)


def test_rehearsal_and_seats_agree_on_right_and_on_wrong_machines(measured: Path) -> None:
    found = summary(CASE, measured)
    for one in (found, found["quarter"]):
        assert (one["files"], one["agree"], one["split"]) == (5, 5, 0)
        assert (one["honest"]["accepted"], one["wrong"]["accepted"]) == (2, 0)
    assert found["differing"] == []
    (first, *_) = lines(measured / "journals" / SEAT)
    assert Code(first["everything"]["code"]) is Code.ACCEPT
    assert 0 <= first["everything"]["share"] < 1


def test_a_seat_that_says_something_else_is_told_with_its_figures(measured: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(measured, folder)
    path = folder / "journals" / SEAT
    said = lines(path)
    (at,) = [n for n, line in enumerate(said) if line["file"] == f"{MACHINES[0].name} #1"]
    said[at]["a quarter"] = {"code": int(Code.REJECT_WEIGHTS), "share": 1.5, "figure": "logprobs mean"}
    path.write_text("".join(json.dumps(line) + "\n" for line in said))
    found = summary(CASE, folder)
    assert (found["agree"], found["quarter"]["agree"], found["quarter"]["honest"]["agreement"]) == (5, 4, 0.5)
    (one,) = found["differing"]
    assert (one["what"], one["kind"], one["audited"]) == (f"{MACHINES[0].name} #1", "honest", "a quarter")
    assert (one["rehearsal"], one["committee"]) == ("accept", "reject: weights")
    assert one["figures"][QUICK_PLACES[1].seat] == "reject: weights: logprobs mean 1.5"


def test_what_is_finished_is_kept_and_what_was_cut_off_is_done_again(measured: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(measured, folder)
    path = folder / "journals" / SEAT
    *kept, last = path.read_text().splitlines(keepends=True)
    path.write_text("".join(kept) + last[: len(last) // 2])
    assert summary(CASE, folder)["files"] == 4
    making = (folder / "journals" / MAKING).read_text()
    work(folder)
    assert (folder / "journals" / MAKING).read_text() == making
    assert path.read_text() == "".join(kept) + last
    prepare(folder, CASE, resume=True)
    assert summary(CASE, folder)["files"] == 5
    prepare(folder, case(quick=True), resume=True)
    assert summary(CASE, folder)["files"] == 0
    assert (folder / "policies" / BASE).is_dir()


def test_a_whole_run_has_a_thousand_files_of_every_kind_and_both_audits_of_each() -> None:
    whole = case(quick=False)
    files = whole.files
    assert len(files) == len({file.name for file in files})
    assert {file.machine.kind for file in files} == {"honest", "wrong", "edge"}
    made = [file.name for place in whole.places if "make" in place.does for file in place.files("make", files)]
    assert sorted(made) == sorted(file.name for file in files)
