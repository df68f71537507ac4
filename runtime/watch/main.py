"""The process behind `muster watch`: looks, exposes gauges, posts events."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from protocol.errors import ConfigError
from runtime.process import start
from runtime.watch.alarms import NAMES, Alarm, alarms
from runtime.watch.config import WatchConfig
from runtime.watch.facts import Facts
from runtime.watch.look import Lookout
from runtime.watch.memory import WatchMemory, alarm_gauges, unknown, with_alarms, with_news
from runtime.watch.news import EVENTS, news
from runtime.watch.outbox import Outbox, check_events

log = logging.getLogger("muster.watch")
ALARM_OVER = "alarm_over"


def run(config_path: Path) -> NoReturn:
    """Watch until SIGINT or SIGTERM. Raises ConfigError for what a user can put right."""
    start(config_path, WatchConfig, Watcher)


class Watcher:
    """One look every few seconds; a thread of its own posts what was seen."""

    def __init__(self, config: WatchConfig) -> None:
        check_events(config.webhooks, (*EVENTS, *NAMES, ALARM_OVER))
        self.config = config
        self.lookout = Lookout(config)
        self.outbox = Outbox(config.home / "outbox.json", config.webhooks)
        self._memory_path = config.home / "memory.json"
        self.memory = WatchMemory.load(self._memory_path)
        self.facts = Facts(now=0.0)
        self._stop = threading.Event()

    def stop(self) -> None:
        self._stop.set()

    def run(self) -> int:
        close = serve_gauges(self.config.listen, self)
        poster = threading.Thread(target=self._post, name="webhooks", daemon=True)
        poster.start()
        log.info("watching pool %d every %.0f s", self.config.pool, self.config.every_seconds)
        try:
            while not self._stop.is_set():
                self.once()
                self._stop.wait(self.config.every_seconds)
        finally:
            close()
        return 0

    def once(self) -> None:
        """One look, and what follows from it."""
        before = self.lookout.state
        self.facts = facts = self.lookout.look()
        found = alarms(self.config, facts)
        memory, begun, over = with_alarms(self.memory, found, unknown(facts), facts.now)
        for alarm in found:
            if alarm.name in begun:
                begun.remove(alarm.name)
                self._tell_alarm(alarm)
        for name in over:
            log.info("over: %s", name)
            self._tell(ALARM_OVER, f"{name} is over", "", alarm=name)
        state = self.lookout.state
        if state is not None and state is not before:
            memory, fresh = with_news(memory, news(self.config, state))
            for item in fresh:
                log.warning("%s", item.what)
                self._tell(item.event, item.what, "")
        if memory != self.memory:
            # After the letters: a kill in between tells twice rather than never.
            memory.save(self._memory_path)
            self.memory = memory

    def _tell_alarm(self, alarm: Alarm) -> None:
        log.warning("%s: %s; %s", alarm.name, alarm.what, alarm.cure)
        self._tell(alarm.name, alarm.what, alarm.cure)

    def _tell(self, event: str, what: str, cure: str, **more: str) -> None:
        self.outbox.put(event, {"pool": self.config.pool, "what": what, "cure": cure, **more}, self.facts.now)

    def _post(self) -> None:
        while not self._stop.wait(1.0):
            try:
                self.outbox.deliver(time.time())
            except Exception:  # a bug in one letter must not silence the others
                log.exception("webhooks failed")


class WatchGauges(Collector):
    """The newest look, for Prometheus."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher

    def collect(self) -> Iterator[Metric]:
        watcher, facts = self._watcher, self._watcher.facts
        raised = GaugeMetricFamily("muster_watch_alarm", "1 while an alarm is raised.", labels=["alarm"])
        for name, value in alarm_gauges(watcher.memory.raised).items():
            raised.add_metric([name], value)
        yield raised
        yield GaugeMetricFamily("muster_watch_looked_seconds", "Unix time of the last look.", facts.now)
        free = GaugeMetricFamily("muster_watch_disk_free_bytes", "Free bytes by folder.", labels=["folder"])
        for name, count in facts.free.items():
            free.add_metric([name], count or 0)
        yield free
        left = GaugeMetricFamily(
            "muster_watch_transactions_left", "For how many transactions the gas is enough.", labels=["account"]
        )
        for name, count in facts.transactions_left.items():
            left.add_metric([name], count)
        yield left
        if facts.pool is not None and facts.pool.stake is not None:
            yield GaugeMetricFamily("muster_watch_stake_tokens", "The node's stake.", facts.pool.stake / 1e9)
            yield GaugeMetricFamily("muster_watch_least_stake_tokens", "The pool's.", facts.pool.least_stake / 1e9)
        yield GaugeMetricFamily("muster_watch_letters", "Events on their way to webhooks.", watcher.outbox.waiting)
        yield CounterMetricFamily("muster_watch_letters_dropped", "Events given up.", watcher.outbox.dropped)


def serve_gauges(listen: str, watcher: Watcher) -> Callable[[], None]:
    """Serve them at HOST:PORT, unless that is empty; returns what ends it. Raises ConfigError."""
    if not listen:
        return lambda: None
    registry = CollectorRegistry()
    registry.register(WatchGauges(watcher))
    host, _, port = listen.rpartition(":")
    try:
        server, thread = start_http_server(int(port), host.strip("[]"), registry)
    except (OSError, ValueError, OverflowError) as error:
        raise ConfigError(f"`listen` {listen}: {error}", "write HOST:PORT with a free port, or leave it out") from None

    def close() -> None:
        server.shutdown()
        thread.join(1.0)

    return close
