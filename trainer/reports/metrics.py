"""A step's metrics as named numbers, and where they go besides `metrics.jsonl`: Prometheus, TensorBoard, Weights &
Biases.

A thread hands the metrics to every sink, and no sink can stop training. A sink that fails is logged once; one that
fails too often in a row is given up until the trainer starts again. When sinks are slower than training, the oldest
records that wait are dropped and counted."""

import logging
import math
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from protocol.errors import ConfigError
from protocol.files import write_atomic
from trainer.config import MetricsConfig

if TYPE_CHECKING:  # logs are read without PyTorch
    from trainer.data.batch import Group

SCALARS = {
    "step": "Policy step that was made",
    "loss": "Loss, mean over updates",
    "heldout_loss": "Loss on held-out conversations (fine-tuning)",
    "reward_mean": "Reward after length penalty, mean over rollouts",
    "task_reward_mean": "Task reward, mean over rollouts",
    "entropy": "Entropy of the policy in nats, mean over trained tokens",
    "grad_norm": "Largest gradient norm of the step's updates, before clipping",
    "clip_low": "Share of tokens on which the lower bound of the trust region acted",
    "clip_high": "Share of tokens on which the upper bound of the trust region acted",
    "kl": "Estimated KL divergence from the policy before the step, mean over trained tokens",
    "mismatch": "Estimated KL divergence of the trainer's policy from the workers', mean over trained tokens",
    "length_error": "Mean distance of answers from their target lengths, in tokens",
    "output_length_mean": "Output tokens, mean over rollouts",
    "groups_used": "Groups with signal that were trained on",
    "groups_dropped": "Groups without signal that were dropped",
    "dropped_share": "Share of the step's groups that were dropped",
    "rollouts": "Rollouts of the step, dropped groups included",
    "tokens": "Output tokens that were trained on",
    "learning_rate": "Learning rate of the last update",
    "staleness_mean": "Policy steps between a file's policy and the one it was trained into, mean over files",
    "tokens_per_second": "Tokens, prompts included, trained per second of training",
    "mfu": "Share of the device's peak floating-point operations that training used",
    "idle_share": "Share of the step's time that the trainer waited for files",
    "seconds": "Seconds that training the step took",
}
LABELLED = {
    "task_reward": ("Task reward by environment, mean over rollouts", ("environment",)),
    "mismatch_kl": ("Estimated KL divergence of the trainer's policy from a node's", ("node", "engine", "staleness")),
    "mismatch_absolute": ("Mean |difference| of log-probabilities, trainer and node", ("node", "engine", "staleness")),
    "files": ("Files trained on by their staleness in policy steps", ("staleness",)),
    "idle_seconds": ("Seconds waited for files by what was missing", ("cause",)),
    "phase_seconds": ("Seconds of the step by what the trainer did", ("phase",)),
}
HELP = SCALARS | {name: help for name, (help, _) in LABELLED.items()}


@dataclass(frozen=True)
class MetricSample:
    """One number of a step. `labels` are those of LABELLED, none for a scalar."""

    name: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """The name with its labels' values, for sinks without labels: `idle_seconds/judging`."""
        return "/".join([self.name, *self.labels.values()])


def samples(record: Mapping[str, Any]) -> Iterator[MetricSample]:
    """Yield every number of a step's record; what a record lacks is left out."""
    for name in SCALARS:
        if record.get(name) is not None:
            yield MetricSample(name, float(record[name]))
    for environment, reward in record.get("rewards_by_environment", {}).items():
        yield MetricSample("task_reward", reward, {"environment": environment})
    for mismatch in record.get("mismatches", ()):
        labels = {name: str(mismatch[name]) for name in ("node", "engine", "staleness")}
        yield MetricSample("mismatch_kl", mismatch["kl"], labels)
        yield MetricSample("mismatch_absolute", mismatch["absolute"], labels)
    for staleness, files in record.get("staleness", {}).items():
        yield MetricSample("files", float(files), {"staleness": str(staleness)})
    for cause, seconds in record.get("idle", {}).items():
        yield MetricSample("idle_seconds", seconds, {"cause": cause})
    for phase, seconds in record.get("timings", {}).items():
        yield MetricSample("phase_seconds", seconds, {"phase": phase})


MOST_BUILDS = 32
OTHER = "other"


class KnownBuilds:
    """The first `MOST_BUILDS` builds keep their names, every later one is `OTHER`: a metrics server keeps each value
    of a label for ever, so a node that calls itself something new in every file would fill it."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def bounded(self, numbers: Iterable[MetricSample]) -> list[MetricSample]:
        """Return the same numbers; of those that then have all labels in common, the first."""
        distinct: dict[tuple[str, ...], MetricSample] = {}
        for one in map(self._renamed, numbers):
            distinct.setdefault((one.name, *one.labels.values()), one)
        return list(distinct.values())

    def _renamed(self, one: MetricSample) -> MetricSample:
        build = one.labels.get("engine")
        if build is None:
            return one
        if len(self._names) < MOST_BUILDS:
            self._names.add(build)
        return one if build in self._names else replace(one, labels={**one.labels, "engine": OTHER})


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


_PREFIX = "muster_trainer_"


class PrometheusSink(Collector):
    """`muster_trainer_<name>` gauges in the file at `path` (for node_exporter's textfile collector), and served at
    `listen` (HOST:PORT) unless that is empty. Raises ConfigError if the address cannot be used."""

    name = "prometheus"

    def __init__(self, path: Path, listen: str = "") -> None:
        self._path = path
        self._numbers: Sequence[MetricSample] = ()
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._close: Callable[[], None] = lambda: None
        if listen:
            self._serve(listen)

    def write(self, step: int, numbers: Sequence[MetricSample]) -> None:
        self._numbers = numbers
        write_atomic(self._path, generate_latest(self._registry))

    def close(self) -> None:
        self._close()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauges, as the library asks for them at every scrape."""
        numbers = self._numbers
        for name in (*SCALARS, *LABELLED):
            labels = LABELLED[name][1] if name in LABELLED else ()
            family = GaugeMetricFamily(_PREFIX + name, HELP[name], labels=labels)
            for one in numbers:
                if one.name == name:
                    family.add_metric([one.labels[label] for label in labels], one.value)
            if family.samples:
                yield family

    def _serve(self, listen: str) -> None:
        host, _, port = listen.rpartition(":")
        try:
            server, thread = start_http_server(int(port), host.strip("[]"), self._registry)
        except (OSError, ValueError, OverflowError) as error:
            raise ConfigError(
                f"`metrics.listen` {listen}: {error}", "write HOST:PORT with a free port, or leave it out"
            ) from None

        def close() -> None:
            server.shutdown()
            thread.join(1.0)

        self._close = close


class TensorBoardSink:
    """Event files in `folder`. Raises ConfigError if TensorBoard is not installed."""

    name = "tensorboard"

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ConfigError(
                "`metrics.tensorboard` is set, but TensorBoard is not installed", "pip install tensorboard"
            ) from None
        make: Any = SummaryWriter
        self._writer = make(log_dir=str(folder))

    def write(self, step: int, numbers: Sequence[MetricSample]) -> None:
        for one in numbers:
            self._writer.add_scalar(one.path, one.value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WandbSink:
    """A run of Weights & Biases; the same `run` after a restart. Raises ConfigError if the package is not installed or
    refuses to start."""

    name = "wandb"

    def __init__(self, project: str, run: str, folder: Path, mode: str = "online") -> None:
        try:
            import wandb  # type: ignore[import-not-found,unused-ignore]
        except ImportError:
            raise ConfigError("`metrics.wandb` is set, but wandb is not installed", "pip install wandb") from None
        library: Any = wandb
        try:
            self._run = library.init(project=project, id=run, name=run, dir=str(folder), mode=mode, resume="allow")
        except Exception as error:  # its client has errors of its own
            raise ConfigError(
                f"wandb does not start: {error}", 'log in with `wandb login`, or set `metrics.wandb.mode` = "offline"'
            ) from None

    def write(self, step: int, numbers: Sequence[MetricSample]) -> None:
        self._run.log({one.path: one.value for one in numbers}, step=step)

    def close(self) -> None:
        self._run.finish()


PROMETHEUS_FILE = "metrics.prom"


def make_sinks(config: MetricsConfig, home: Path, run: str) -> list[Sink]:
    """Return every sink of a run named `run`, whose files are in `home`. Raises ConfigError for one that cannot
    start."""
    sinks: list[Sink] = [PrometheusSink(home / PROMETHEUS_FILE, config.listen)]
    if config.tensorboard is not None:
        sinks.append(TensorBoardSink(config.tensorboard))
    if config.wandb is not None:
        sinks.append(WandbSink(config.wandb.project, run, home, config.wandb.mode))
    return sinks


def batch_metrics(groups: Iterable["Group"], policy_steps: Sequence[int], trained: int) -> dict[str, Any]:
    """Return for the record of the step that made policy `trained` from files of `policy_steps`: mean task reward by
    environment, mean distance from target lengths (tokens; None where there are none), files by staleness (policy steps
    between a file's weights and those it is trained into)."""
    rollouts = [rollout for group in groups for rollout in group]
    by_environment: dict[str, list[float]] = {}
    for rollout in rollouts:
        by_environment.setdefault(rollout.settings.environment, []).append(rollout.task_reward)
    errors = [abs(rollout.target - len(rollout.output)) for rollout in rollouts if rollout.target]
    ages = [trained - 1 - step for step in policy_steps]
    return {
        "rewards_by_environment": {name: _mean(rewards) for name, rewards in sorted(by_environment.items())},
        "length_error": _mean(errors) if errors else None,
        "staleness": {str(age): count for age, count in sorted(Counter(ages).items())},
        "staleness_mean": _mean(ages) if ages else None,
    }


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


CAUSES = ("starting", "generating", "judging", "confirming", "fetching")
"""No file was ever submitted · too few files are submitted · too few verdicts · too few blocks on top of a verdict, or
a dispute · the bucket."""


@dataclass(frozen=True)
class AwaitedFiles:
    """Files for the next step: `wanted` of them; `ready` to train on, `fetching` from the bucket, `confirming`
    (accepted, not yet deep or disputed), `judging` (no verdict yet). `any_submitted`: whether the pool
    ever got a file."""

    wanted: int
    ready: int
    fetching: int
    confirming: int
    judging: int
    any_submitted: bool = True

    @property
    def cause(self) -> str:
        """The last thing in a file's life that has to happen to enough files: what holds the step up."""
        known = self.ready
        for cause, count in (
            ("fetching", self.fetching),
            ("confirming", self.confirming),
            ("judging", self.judging),
        ):
            known += count
            if known >= self.wanted:
                return cause
        return "generating" if self.any_submitted else "starting"

    @property
    def summary(self) -> str:
        """How many files are at which stage."""
        counts = {"ready": self.ready, "to be fetched": self.fetching, "accepted but not final": self.confirming}
        parts = [f"{count} {stage}" for stage, count in (counts | {"not judged": self.judging}).items() if count]
        return ", ".join(parts) or "no file is submitted"


class IdleClock:
    """Where the trainer's time goes between two records: seconds of waiting by cause, and their share."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = self._last = clock()
        self._cause = ""
        self._seconds: dict[str, float] = {}

    def begin(self) -> None:
        """Start a wait."""
        self._last, self._cause = self._clock(), ""

    def tick(self, cause: str) -> None:
        """Count the time since the last tick, during which `cause` was missing."""
        now = self._clock()
        self._seconds[cause] = self._seconds.get(cause, 0.0) + now - self._last
        self._last, self._cause = now, cause

    def end(self) -> None:
        """End the wait: the files are there."""
        self.tick(self._cause or "fetching")

    def record(self) -> dict[str, Any]:
        """Return for the record of a step the seconds waited by cause, and their share of the time since the record
        before."""
        now = self._clock()
        elapsed, seconds = now - self._since, self._seconds
        self._since, self._seconds = now, {}
        return {
            "idle": {cause: round(seconds[cause], 3) for cause in CAUSES if cause in seconds},
            "idle_share": round(sum(seconds.values()) / elapsed, 4) if elapsed > 0 else 0.0,
        }
