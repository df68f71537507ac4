"""The trainer's reports to the orchestrator: kept until they are taken, never in the way of training."""

import logging
import math
import time
from typing import Any

from protocol.api.work import SignedEvaluation, StepRequest
from protocol.errors import MusterError
from runtime.orchestrator_client import OrchestratorClient
from runtime.signed_client import ServiceError
from trainer.metrics.catalogue import SCALARS, samples
from trainer.state.records import Records

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
