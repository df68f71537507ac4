"""The trainer's logs on disk, read by people and by its own restart; every line is written once."""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chain.records import Submission
from protocol.api.work import SignedEvaluation
from protocol.files import write_atomic
from trainer.inbox import file_id

if TYPE_CHECKING:  # the demo reads these logs without PyTorch
    from trainer.step_metrics import StepMetrics


_MEANS = ("reward_mean", "task_reward_mean", "output_length_mean")


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
