"""The trainer's logs on disk, read by people and by its own restart; every line is written once."""

import json
import logging
import math
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chain.indexer.records import Submission
from protocol.api.evaluation import SignedEvaluation
from protocol.api.work import StepRequest
from protocol.errors import MusterError
from protocol.files import write_atomic
from runtime.orchestrator_client import OrchestratorClient
from runtime.signed_client import ServiceError
from trainer.metrics import SCALARS, samples

if TYPE_CHECKING:
    from trainer.step_metrics import StepMetrics


_MEANS = ("reward_mean", "task_reward_mean", "output_length_mean")


def file_id(submission: Submission) -> str:
    """What a file is consumed by: its SHA-256, which a reorganisation does not change (its sequence might)."""
    return submission.sha256.hex()


class Records:
    """`metrics.jsonl`: metrics and timings of a step; `trained.jsonl`: every consumed file with its step;
    `evaluations.jsonl`: every signed evaluation."""

    def __init__(self, folder: Path) -> None:
        self.metrics_path, self.trained_path = folder / "metrics.jsonl", folder / "trained.jsonl"
        self.evaluations_path = folder / "evaluations.jsonl"

    def write(self, document: dict[str, Any], files: list[dict[str, Any]]) -> None:
        """Append a step's records unless they are there; `files` before `document`, whose presence means all is."""
        step = document["step"]
        known = {(entry["step"], entry["sha256"]) for entry in self.trained()}
        _append(self.trained_path, [entry for entry in files if (step, entry["sha256"]) not in known])
        if all(entry["step"] != step for entry in self.metrics()):
            _append(self.metrics_path, [document])

    def add_evaluation(self, signed: SignedEvaluation) -> None:
        """Append an evaluation; each step has one."""
        _append(self.evaluations_path, [signed.model_dump(mode="json")])

    def evaluations(self) -> dict[int, SignedEvaluation]:
        """Every evaluation so far, by policy step."""
        found = map(SignedEvaluation.model_validate, read_records(self.evaluations_path))
        return {one.evaluation.step: one for one in found}

    def metrics(self) -> list[dict[str, Any]]:
        return read_records(self.metrics_path)

    def trained(self) -> list[dict[str, Any]]:
        return read_records(self.trained_path)

    def trained_in(self, step: int) -> list[dict[str, Any]]:
        return [entry for entry in self.trained() if entry["step"] == step]


def step_record(metrics: "StepMetrics", files: list[Submission], waited: float) -> dict[str, Any]:
    """The line of `metrics.jsonl` for a step trained on `files`, for which the trainer waited so many seconds."""
    unknown = {} if metrics.rollouts else dict.fromkeys(_MEANS)
    return (
        asdict(metrics)
        | unknown
        | {
            "timings": {"wait": round(waited, 3), "train": round(metrics.seconds, 3)},
            "time": round(time.time(), 3),
            "consumed": [sub.sequence for sub in files],
            "policy_steps": [sub.step for sub in files],
        }
    )


def file_record(step: int, sub: Submission) -> dict[str, Any]:
    """The line of `trained.jsonl` for a file that policy step `step` was trained on."""
    return {"step": step, "sequence": sub.sequence, "sha256": file_id(sub), "node": sub.node, "policy_step": sub.step}


def read_records(path: Path) -> list[dict[str, Any]]:
    """The complete lines of a log; none where there is no file."""
    return [json.loads(line) for line in _whole_lines(path).splitlines()]


def write_records(path: Path, entries: list[dict[str, Any]]) -> None:
    """Replace a log by these lines."""
    write_atomic(path, _lines(entries).encode())


def _lines(entries: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(entry, sort_keys=True) + "\n" for entry in entries)


def _append(path: Path, entries: list[dict[str, Any]]) -> None:
    write_atomic(path, (_whole_lines(path) + _lines(entries)).encode())


def _whole_lines(path: Path) -> str:
    """What a log holds, without a line that a kill cut off."""
    text = path.read_text() if path.exists() else ""
    return text[: text.rfind("\n") + 1]


# The trainer's reports to the orchestrator: kept until they are taken, never in the way of training.


log = logging.getLogger("muster.trainer")
_REPORTED = {*SCALARS, "idle_seconds", "files"} - {"step"}
_RETRY_SECONDS = 5.0
_PASSING = frozenset({401, 403, 404, 408, 425, 429})


class Reports:
    """Steps that the orchestrator has not confirmed yet. The same step may be reported again: the last one counts."""

    def __init__(self, service: OrchestratorClient, records: Records) -> None:
        self.service, self.records = service, records
        self._evaluations = records.evaluations()
        self._waiting: dict[int, StepRequest] = {}
        self._next_try = 0.0

    @property
    def evaluated(self) -> set[int]:
        """Policy steps whose evaluation is recorded."""
        return set(self._evaluations)

    def evaluation(self, signed: SignedEvaluation) -> None:
        """Keep an evaluation and report its step again with it."""
        step = signed.evaluation.step
        self.records.add_evaluation(signed)
        self._evaluations[step] = signed
        known = {entry["step"]: entry for entry in self.records.metrics()}
        self.add(step, known.get(step, {}))
        self.flush()

    def add(self, step: int, document: dict[str, Any]) -> None:
        """Report a step as its record says; a metric that is no number is left out."""
        metrics = {one.path: one.value for one in samples(document) if one.name in _REPORTED}
        if document.get("task_reward_mean") is not None:
            metrics["reward"] = document["task_reward_mean"]
        self._waiting[step] = StepRequest(
            step=step,
            consumed=document.get("consumed", []),
            metrics={name: value for name, value in metrics.items() if math.isfinite(value)},
            timings=document.get("timings", {}),
            evaluation=self._evaluations.get(step),
        )

    def catch_up(self) -> None:
        """After a restart: everything once more, since nobody knows what was confirmed."""
        for entry in self.records.metrics():
            self.add(entry["step"], entry)
        if 0 in self._evaluations:
            self.add(0, {})

    def flush(self, patience: float = 0.0) -> None:
        """Send what waits, for at most `patience` seconds beyond one try; an outage is logged and tried again later."""
        end = time.monotonic() + patience
        while self._waiting and (patience or time.monotonic() >= self._next_try):
            try:
                for step in sorted(self._waiting):
                    self._send(step)
                return
            except MusterError as error:
                self._next_try = time.monotonic() + _RETRY_SECONDS
                log.warning("the report of %d steps waits: %s", len(self._waiting), error.what)
                if time.monotonic() >= end:
                    return
                time.sleep(1.0)

    def _send(self, step: int) -> None:
        """Deliver one report. One that is refused for what it says is dropped: repeating it would not help."""
        try:
            self.service.report_step(self._waiting[step])
        except ServiceError as error:
            if error.status in _PASSING or error.status >= 500:
                raise
            log.warning("the report of step %d is refused: %s", step, error.detail)
        del self._waiting[step]
