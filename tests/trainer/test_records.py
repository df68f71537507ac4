"""Records and reports: written once, whole after a kill, delivered without stopping anybody."""

import resource
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from protocol.api.work import Evaluation, SetResult, SignedEvaluation, StepRequest
from protocol.errors import MusterError, UnreachableError
from runtime.signed_client import ServiceError
from trainer.reports.records import Records, Reports, read_records


def document(step: int) -> dict[str, Any]:
    return {"step": step, "task_reward_mean": 0.5, "loss": 0.1, "consumed": [step], "timings": {"wait": 1.0}}


def entry(step: int, name: str) -> dict[str, Any]:
    return {"step": step, "sequence": step, "sha256": name, "node": "0x", "policy_step": 0}


def reports(folder: Path, *answers: Exception | None) -> tuple[Reports, Mock]:
    """The reports of a folder, and a service that answers so, one report after the other."""
    service = Mock(**{"report_step.side_effect": answers})
    return Reports(service, Records(folder)), service


def told(service: Mock) -> list[StepRequest]:
    """What the service was sent."""
    return [call.args[0] for call in service.report_step.call_args_list]


def test_a_step_is_recorded_once_and_the_logs_are_only_appended_to(tmp_path: Path) -> None:
    for _ in range(2):
        Records(tmp_path).write(document(1), [entry(1, "a"), entry(1, "b")])
    records = Records(tmp_path)
    assert len(records.metrics()) == 1
    assert records.trained_in(1) == ["a", "b"]
    before = [path.stat().st_ino for path in (records.metrics_path, records.trained_path)]
    records.write(document(2), [entry(2, "c")])
    assert [path.stat().st_ino for path in (records.metrics_path, records.trained_path)] == before
    assert [one["sha256"] for one in read_records(records.trained_path)] == ["a", "b", "c"]


@pytest.mark.parametrize("names", ["ab", "cd"])
def test_a_step_whose_lines_a_kill_cut_off_is_not_recorded(tmp_path: Path, names: str) -> None:
    """It may be trained on other files then."""
    Records(tmp_path).write(document(1), [entry(1, "x")])
    Records(tmp_path).write(document(2), [entry(2, "a"), entry(2, "b")])
    for name in ("metrics.jsonl", "trained.jsonl"):
        path = tmp_path / name
        path.write_bytes(path.read_bytes()[:-7])
    records = Records(tmp_path)
    assert [records.trained_in(step) for step in (1, 2)] == [["x"], None]
    records.write(document(2), [entry(2, name) for name in names])
    assert [one["sha256"] for one in read_records(records.trained_path)] == ["x", *names]
    assert [one["step"] for one in Records(tmp_path).metrics()] == [1, 2]


@pytest.mark.parametrize("room", [0, 20, 100])
def test_a_step_for_which_the_disk_has_no_room_is_recorded_once_it_has(tmp_path: Path, room: int) -> None:
    """Whatever part of its lines was written before."""
    records, unlimited = Records(tmp_path), resource.getrlimit(resource.RLIMIT_FSIZE)
    records.write(document(1), [entry(1, "x")])
    written = [path.read_bytes() for path in (records.trained_path, records.metrics_path)]
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(written[0]) + room, unlimited[1]))
    try:
        with pytest.raises(MusterError, match=r"File too large|No space left"):
            records.write(document(2), [entry(2, "a"), entry(2, "b")])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert records.trained_in(2) is None
    for _ in range(2):
        records.write(document(2), [entry(2, "a"), entry(2, "b")])
    assert [one["sha256"] for one in read_records(records.trained_path)] == ["x", "a", "b"]
    assert [one["step"] for one in read_records(records.metrics_path)] == [1, 2]


def test_reports_wait_out_an_outage_and_are_said_again_after_a_restart(tmp_path: Path) -> None:
    first, _ = reports(tmp_path, UnreachableError("nobody there"))
    first.records.write(document(1), [])
    first.add(1, document(1))
    first.flush()
    again, service = reports(tmp_path, None)
    again.catch_up()
    again.flush()
    (report,) = told(service)
    assert (report.step, report.consumed, report.metrics["reward"]) == (1, [1], 0.5)


def test_a_report_that_is_refused_for_good_does_not_hold_up_the_next(tmp_path: Path) -> None:
    made, service = reports(tmp_path, ServiceError(409, "consumed twice", "http://x"), None)
    for step in (1, 2):
        made.add(step, document(step))
        made.flush()
    made.flush()
    assert [one.step for one in told(service)] == [1, 2], "neither is sent again"


def test_evaluations_are_kept_even_when_nothing_was_solved(tmp_path: Path) -> None:
    made, service = reports(tmp_path, None)
    assert made.evaluated == set()
    result = SetResult(name="held-out", problems=2, samples=1, average=0.0, error=0.0, length=1.0, seconds=0.0)
    evaluation = Evaluation(step=0, manifest="ab" * 32, config_hash="cd" * 32, time=1.0, results=[result])
    signed = SignedEvaluation(evaluation=evaluation, signature="0x" + "00" * 65)
    made.evaluation(signed)
    assert told(service)[-1].evaluation == signed
    again, service = reports(tmp_path, None)
    assert again.evaluated == {0}
    again.catch_up()
    again.flush()
    assert told(service)[-1].evaluation == signed
