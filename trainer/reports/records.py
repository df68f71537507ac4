"""The trainer's logs on disk, which the local network reads without PyTorch, and its reports to the orchestrator."""

import errno
import json
import logging
import math
import os
import time
from pathlib import Path
from typing import Any

from chain.indexer.records import Submission
from protocol.api.work import SignedEvaluation, StepRequest
from protocol.errors import MusterError, unwritten
from protocol.files import write_atomic
from runtime.orchestrator_client import OrchestratorClient
from runtime.signed_client import ServiceError
from trainer.reports.metrics import SCALARS, samples

log = logging.getLogger("muster.trainer")
_REPORTED = {*SCALARS, "idle_seconds", "files"} - {"step"}
_RETRY_SECONDS = 5.0
_TEMPORARY = frozenset({401, 403, 404, 408, 425, 429})


def file_id(submission: Submission) -> str:
    """Return what a file is consumed by: its SHA-256, which a reorganisation does not change (its sequence might)."""
    return submission.sha256.hex()


class Records:
    """The logs of one trainer, read once and then only appended to: `metrics.jsonl`, metrics and timings of each step;
    `trained.jsonl`, every consumed file with its step; `evaluations.jsonl`, every signed evaluation; `refused.jsonl`,
    files that made a step unstable (delete a line to let the trainer try the file again)."""

    def __init__(self, folder: Path) -> None:
        self.metrics_path, self.trained_path = folder / "metrics.jsonl", folder / "trained.jsonl"
        self.refused_path, self.evaluations_path = folder / "refused.jsonl", folder / "evaluations.jsonl"
        self._repaired: set[Path] = set()
        self._metrics = read_records(self.metrics_path)
        self._trained: dict[int, list[str]] = {}
        for entry in read_records(self.trained_path):
            self._trained.setdefault(entry["step"], []).append(entry["sha256"])

    def write(self, document: dict[str, Any], files: list[dict[str, Any]]) -> None:
        """Append a step's records unless they are there: `files` before `document`, whose presence means all is. Raises
        MusterError if the disk does not take them; it may be retried."""
        step = document["step"]
        if self.trained_in(step) is not None:
            return
        try:
            if step in self._trained:  # without the document: a kill or a full disk came between
                others = [entry for entry in read_records(self.trained_path) if entry["step"] != step]
                write_records(self.trained_path, others)
            self._trained[step] = [entry["sha256"] for entry in files]
            self._append(self.trained_path, files)
            self._append(self.metrics_path, [document])
        except OSError as error:
            raise MusterError(unwritten(error)) from None
        self._metrics.append(document)

    def refuse(self, sub: Submission, reason: str) -> None:
        self._append(self.refused_path, [{"sha256": file_id(sub), "node": sub.node, "reason": reason}])

    def add_evaluation(self, signed: SignedEvaluation) -> None:
        self._append(self.evaluations_path, [signed.model_dump(mode="json")])

    def evaluations(self) -> dict[int, SignedEvaluation]:
        """Return every evaluation so far, by policy step."""
        evaluations = map(SignedEvaluation.model_validate, read_records(self.evaluations_path))
        return {signed.evaluation.step: signed for signed in evaluations}

    def refused(self) -> set[str]:
        """Return the SHA-256 of every refused file."""
        return {entry["sha256"] for entry in read_records(self.refused_path)}

    def metrics(self) -> list[dict[str, Any]]:
        """Return the record of every step so far."""
        return self._metrics

    def before(self, step: int) -> list[dict[str, Any]]:
        """Return the records of the steps before one: a step that is repeated has others behind it."""
        return [entry for entry in self._metrics if entry["step"] < step]

    @property
    def last(self) -> int:
        """The last recorded step, 0 if there is none."""
        return max((entry["step"] for entry in self._metrics), default=0)

    def trained_in(self, step: int) -> list[str] | None:
        """Return the SHA-256 of the files that a step was trained on; None if it is not recorded."""
        known = any(entry["step"] == step for entry in self._metrics)
        return self._trained.get(step, []) if known else None

    def _append(self, path: Path, entries: list[dict[str, Any]]) -> None:
        if not entries:
            return
        if path not in self._repaired:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():  # a kill may have left the last line incomplete: the next one must not join it
                os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
            self._repaired.add(path)
        lines = _lines(entries)
        with path.open("ab", buffering=0) as file:  # what a buffer keeps of a failed write would come after it
            end = file.tell()
            try:
                if file.write(lines) < len(lines):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
                os.fsync(file.fileno())
            except OSError:
                os.truncate(path, end)
                raise


def file_record(step: int, sub: Submission) -> dict[str, Any]:
    """Return the line of `trained.jsonl` for a file that policy step `step` was trained on."""
    return {"step": step, "sequence": sub.sequence, "sha256": file_id(sub), "node": sub.node, "policy_step": sub.step}


def read_records(path: Path) -> list[dict[str, Any]]:
    """Return the complete lines of a log; none where there is no file."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.split("\n")[:-1]]


def write_records(path: Path, entries: list[dict[str, Any]]) -> None:
    """Replace a log by these lines."""
    write_atomic(path, _lines(entries))


def _lines(entries: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(entry, sort_keys=True) + "\n" for entry in entries).encode()


class Reports:
    """Steps that the orchestrator has not confirmed yet. A step may be reported again: the last report counts."""

    def __init__(self, service: OrchestratorClient, records: Records) -> None:
        self.service, self.records = service, records
        self._evaluations = records.evaluations()
        self._waiting: dict[int, StepRequest] = {}
        self._next_try, self._final = 0.0, -1

    @property
    def evaluated(self) -> set[int]:
        """Policy steps whose evaluation is recorded."""
        return set(self._evaluations)

    def reached(self, reward: float | None) -> bool:
        """Return whether any evaluation found this reward in its first set."""
        found = (result.average for signed in self._evaluations.values() for result in signed.evaluation.results[:1])
        return reward is not None and any(average >= reward for average in found)

    def evaluation(self, signed: SignedEvaluation) -> None:
        """Record an evaluation and report its step again with it."""
        step = signed.evaluation.step
        self.records.add_evaluation(signed)
        self._evaluations[step] = signed
        self._again(step)
        self.flush()

    def finish(self, step: int) -> None:
        """Report a step again as the run's last."""
        self._final = step
        self._again(step)

    def _again(self, step: int) -> None:
        self.add(step, next((entry for entry in self.records.metrics() if entry["step"] == step), {}))

    def add(self, step: int, document: dict[str, Any]) -> None:
        """Report a step as its record says; a metric that is not finite is left out."""
        metrics = {sample.path: sample.value for sample in samples(document) if sample.name in _REPORTED}
        if document.get("task_reward_mean") is not None:
            metrics["reward"] = document["task_reward_mean"]
        self._waiting[step] = StepRequest(
            step=step,
            consumed=document.get("consumed", []),
            metrics={name: value for name, value in metrics.items() if math.isfinite(value)},
            timings=document.get("timings", {}),
            evaluation=self._evaluations.get(step),
            final=step == self._final,
        )

    def catch_up(self) -> None:
        """Report everything once more after a restart, since nobody knows what was confirmed."""
        for entry in self.records.metrics():
            self.add(entry["step"], entry)
        if 0 in self._evaluations:
            self.add(0, {})

    def flush(self, patience: float = 0.0) -> None:
        """Send what waits, for at most `patience` seconds beyond one try; an outage is logged and retried later. A
        report that is refused for its content is dropped: repeating it would not help."""
        end = time.monotonic() + patience
        while self._waiting and (patience or time.monotonic() >= self._next_try):
            step = min(self._waiting)
            try:
                self.service.report_step(self._waiting[step])
                del self._waiting[step]
            except MusterError as error:
                if isinstance(error, ServiceError) and error.status < 500 and error.status not in _TEMPORARY:
                    log.warning("the report of step %d is refused: %s", step, error.detail)
                    del self._waiting[step]
                    continue
                self._next_try = time.monotonic() + _RETRY_SECONDS
                log.warning("the report of %d steps waits: %s", len(self._waiting), error.what)
                if time.monotonic() >= end:
                    return
                time.sleep(1.0)
