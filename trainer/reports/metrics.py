"""A step's metrics as named numbers, and where they go besides `metrics.jsonl`: Prometheus, TensorBoard, Weights &
Biases. No sink can stop training: when sinks are slower, the oldest records that wait are dropped."""

import importlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import Empty, Queue
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from protocol.errors import ConfigError
from protocol.files import write_atomic
from runtime.entry import essential
from trainer.config import MetricsConfig

log = logging.getLogger("muster.trainer")
MOST_BUILDS, OTHER = 32, "other"

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
    "masked": "Share of tokens whose file disagrees too much with the trainer to be learned from",
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
_SOURCE = ("node", "engine", "staleness")
LABELLED = {
    "task_reward": ("Task reward by environment, mean over rollouts", ("environment",)),
    "mismatch_kl": ("Estimated KL divergence of the trainer's policy from a node's", _SOURCE),
    "mismatch_masked": ("Tokens of a node's that were not learned from for their mismatch", _SOURCE),
    "files": ("Files trained on by their staleness in policy steps", ("staleness",)),
    "idle_seconds": ("Seconds waited for files by what was missing", ("cause",)),
    "phase_seconds": ("Seconds of the step by what the trainer did", ("phase",)),
}
# A record's field that maps a label to a number → the metric.
_BY_LABEL = {
    "rewards_by_environment": "task_reward", "staleness": "files", "idle": "idle_seconds", "timings": "phase_seconds",
}  # fmt: skip
HELP = SCALARS | {name: help for name, (help, _) in LABELLED.items()}


@dataclass(frozen=True)
class MetricSample:
    """One number of a step; `labels` as in LABELLED."""

    name: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """The name in sinks without labels, such as `idle_seconds/judging`."""
        return "/".join([self.name, *self.labels.values()])


def samples(record: Mapping[str, Any]) -> Iterator[MetricSample]:
    """Yield every number of a step's record; what a record lacks is left out."""
    for name in SCALARS:
        if record.get(name) is not None:
            yield MetricSample(name, float(record[name]))
    for mismatch in record.get("mismatches", ()):
        labels = {name: str(mismatch[name]) for name in _SOURCE}
        for name in ("kl", "masked"):
            yield MetricSample(f"mismatch_{name}", mismatch[name], labels)
    for measured, name in _BY_LABEL.items():
        (label,) = LABELLED[name][1]
        for value, number in record.get(measured, {}).items():
            yield MetricSample(name, float(number), {label: str(value)})


def bounded(numbers: Iterable[MetricSample], builds: set[str]) -> list[MetricSample]:
    """Call every engine build beyond the first `MOST_BUILDS` in `builds` `OTHER`; of numbers that then have all labels
    in common, keep the first: a node that names a new build in every file would fill a metrics server."""
    distinct: dict[str, MetricSample] = {}
    for sample in numbers:
        build = sample.labels.get("engine")
        if build is not None:
            if len(builds) < MOST_BUILDS:
                builds.add(build)
            if build not in builds:
                sample = replace(sample, labels={**sample.labels, "engine": OTHER})
        distinct.setdefault(sample.path, sample)
    return list(distinct.values())


class Sink(Protocol):
    """Takes the metrics of a step. It may raise anything."""

    name: str

    def write(self, step: int, numbers: Sequence[MetricSample]) -> None: ...

    def close(self) -> None: ...


class MetricsSinks:
    """Writes records to `sinks` from a thread of its own. `dropped`: records that no sink ever saw."""

    def __init__(self, sinks: Sequence[Sink], waiting: int = 256) -> None:
        self._sinks = sinks
        self._waiting = Queue[Mapping[str, Any] | None](waiting)  # None: the end
        self._thread = essential("metrics", self._run)
        self.dropped = 0

    def start(self) -> None:
        self._thread.start()

    def write(self, record: Mapping[str, Any] | None) -> None:
        """Hand on a step's record; returns at once."""
        if self._waiting.full():
            with suppress(Empty):
                self._waiting.get_nowait()
                self.dropped += 1
            if self.dropped == 1:
                log.warning("metrics come faster than their sinks take them: the oldest are dropped")
        self._waiting.put(record and dict(record))

    def close(self, patience: float = 5.0) -> None:
        """Write what waits and close the sinks, for at most `patience` seconds."""
        self.write(None)
        if self._thread.is_alive():
            self._thread.join(patience)

    def _run(self) -> None:
        builds, failing = set[str](), set[str]()
        while (record := self._waiting.get()) is not None:
            numbers = bounded(samples(record), builds)
            for sink in self._sinks:
                try:
                    sink.write(int(record["step"]), numbers)
                    failing.discard(sink.name)
                except Exception as error:  # whatever another program's client raises
                    if sink.name not in failing:
                        log.warning("metrics sink %s fails: %s; it is tried again with every step", sink.name, error)
                    failing.add(sink.name)
        for sink in self._sinks:
            try:
                sink.close()
            except Exception as error:
                log.warning("metrics sink %s did not close: %s", sink.name, error)


class PrometheusSink(Collector):
    """`muster_trainer_<name>` gauges in the file at `path` (for node_exporter's textfile collector), and served at
    `listen` (HOST:PORT) unless that is empty. Raises ConfigError if the address cannot be used."""

    name = "prometheus"

    def __init__(self, path: Path, listen: str = "") -> None:
        self._path, self._registry = path, CollectorRegistry()
        self._numbers: Sequence[MetricSample] = ()
        self._registry.register(self)
        self._stop: Callable[[], None] = lambda: None
        if listen:
            host, _, port = listen.rpartition(":")
            try:
                server, _ = start_http_server(int(port), host.strip("[]"), self._registry)
            except (OSError, ValueError, OverflowError) as error:
                hint = "write HOST:PORT with a free port, or leave it out"
                raise ConfigError(f"`metrics.listen` {listen}: {error}", hint) from None
            self._stop = server.shutdown

    def write(self, step: int, numbers: Sequence[MetricSample]) -> None:
        self._numbers = numbers
        write_atomic(self._path, generate_latest(self._registry))

    def close(self) -> None:
        self._stop()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauges, as the library asks for them at every scrape."""
        numbers = self._numbers
        for name, text in HELP.items():
            labels = LABELLED[name][1] if name in LABELLED else ()
            family = GaugeMetricFamily(f"muster_trainer_{name}", text, labels=labels)
            for sample in numbers:
                if sample.name == name:
                    family.add_metric([sample.labels[label] for label in labels], sample.value)
            if family.samples:
                yield family


class TensorBoardSink:
    """Event files in `folder`. Raises ConfigError if TensorBoard is not installed."""

    name = "tensorboard"

    def __init__(self, folder: Path) -> None:
        library = _installed("torch.utils.tensorboard", "tensorboard")
        self._writer = library.SummaryWriter(log_dir=str(folder))

    def write(self, step: int, numbers: Sequence[MetricSample]) -> None:
        for sample in numbers:
            self._writer.add_scalar(sample.path, sample.value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WandbSink:
    """A run of Weights & Biases; the same `run` after a restart. Raises ConfigError if the package is not installed or
    refuses to start."""

    name = "wandb"

    def __init__(self, project: str, run: str, folder: Path) -> None:
        library = _installed("wandb", "wandb")
        try:
            self._run = library.init(project=project, id=run, name=run, dir=str(folder), resume="allow")
        except Exception as error:  # its client has errors of its own
            hint = "log in with `wandb login`, or set WANDB_MODE=offline"
            raise ConfigError(f"wandb does not start: {error}", hint) from None

    def write(self, step: int, numbers: Sequence[MetricSample]) -> None:
        self._run.log({sample.path: sample.value for sample in numbers}, step=step)

    def close(self) -> None:
        self._run.finish()


def _installed(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        what = f"`metrics.{package}` is set, but {package} is not installed"
        raise ConfigError(what, f"pip install {package}") from None


def make_sinks(config: MetricsConfig, home: Path, run: str) -> list[Sink]:
    """Return every sink of a run named `run`, whose files are in `home`. Raises ConfigError for one that cannot
    start."""
    sinks: list[Sink] = [PrometheusSink(home / "metrics.prom", config.listen)]
    if config.tensorboard:
        sinks.append(TensorBoardSink(config.tensorboard))
    if config.wandb:
        sinks.append(WandbSink(config.wandb, run, home))
    return sinks
