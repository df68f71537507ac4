"""The newest step's metrics for Prometheus: a text file always, over HTTP where an address is configured."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from protocol.errors import ConfigError
from protocol.files import write_atomic
from trainer.metrics.catalogue import HELP, LABELLED, SCALARS, MetricSample

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
        """The gauges, as the library asks for them at every scrape."""
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
