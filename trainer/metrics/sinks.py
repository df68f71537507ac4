"""Where a step's metrics go besides `metrics.jsonl`: a thread hands them to every sink, and no sink can stop training.

A sink that fails is logged once; one that fails too often in a row is given up until the trainer starts again. When
sinks are slower than training, the oldest records that wait are dropped and counted.
"""

import logging
import queue
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from trainer.metrics.builds import KnownBuilds
from trainer.metrics.catalogue import MetricSample, samples

log = logging.getLogger("muster.trainer")
_WAITING, _PATIENCE = 256, 20


class Sink(Protocol):
    """Takes the metrics of a step. It may raise anything."""

    @property
    def name(self) -> str: ...

    def write(self, step: int, numbers: Sequence[MetricSample]) -> None: ...

    def close(self) -> None: ...


class MetricsSinks:
    """Writes records to `sinks` from a thread of its own. `dropped`: records that no sink ever saw."""

    def __init__(self, sinks: Sequence[Sink], waiting: int = _WAITING) -> None:
        self._sinks = list(sinks)
        self._failures = dict.fromkeys((sink.name for sink in sinks), 0)
        self._queue: queue.Queue[Mapping[str, Any] | None] = queue.Queue(waiting)
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self.dropped = 0

    def start(self) -> None:
        self._thread.start()

    def write(self, record: Mapping[str, Any]) -> None:
        """Hand on a step's record; returns at once."""
        while True:
            try:
                return self._queue.put_nowait(dict(record))
            except queue.Full:
                self._drop()

    def close(self, patience: float = 5.0) -> None:
        """Write what waits and close the sinks, for at most `patience` seconds."""
        if not self._thread.is_alive():
            return
        while True:
            try:
                self._queue.put_nowait(None)
                break
            except queue.Full:
                self._drop()
        self._thread.join(patience)

    def _drop(self) -> None:
        try:
            self._queue.get_nowait()
        except queue.Empty:
            return
        self.dropped += 1
        if self.dropped == 1:
            log.warning("metrics come faster than their sinks take them: the oldest are dropped")

    def _run(self) -> None:
        builds = KnownBuilds()
        while (record := self._queue.get()) is not None:
            numbers = builds.bounded(samples(record))
            for sink in list(self._sinks):
                self._try(sink, int(record["step"]), numbers)
        for sink in self._sinks:
            try:
                sink.close()
            except Exception as error:
                log.warning("metrics sink %s did not close: %s", sink.name, error)

    def _try(self, sink: Sink, step: int, numbers: Sequence[MetricSample]) -> None:
        try:
            sink.write(step, numbers)
        except Exception as error:  # whatever another program's client raises
            self._failures[sink.name] += 1
            if self._failures[sink.name] == 1:
                log.warning("metrics sink %s fails: %s", sink.name, error)
            if self._failures[sink.name] == _PATIENCE:
                log.warning("metrics sink %s failed %d times in a row: given up until restart", sink.name, _PATIENCE)
                self._sinks.remove(sink)
        else:
            if self._failures[sink.name]:
                log.info("metrics sink %s works again", sink.name)
            self._failures[sink.name] = 0
