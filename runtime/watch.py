"""`muster watch`: watch one participant from outside, serve gauges to Prometheus, post signed events."""

import hashlib
import hmac
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import httpx
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from pydantic import Field

from chain.indexer.records import ChallengeOutcome
from chain.indexer.state import State
from protocol.encoding import Document, canonical_json, load_document, show_tokens
from protocol.errors import ConfigError, first_line
from protocol.files import write_atomic
from protocol.http.transport import bounded_transport, exchange
from runtime.diagnose import NAMES, Alarm, Facts, Lookout, WatchConfig, Webhook, alarms, undecided
from runtime.entry import essential
from runtime.process import start

log = logging.getLogger("muster.watch")
EVENTS = ("slashed", "ejected", "disputed", "dispute_decided", "canary_opened", "challenge_opened", "challenge_decided")
ALARM_OVER = "alarm_over"


@dataclass(frozen=True)
class NewsItem:
    """`key` is the same for the same event in every look."""

    key: str
    event: str
    what: str


def news(config: WatchConfig, state: State) -> Iterator[NewsItem]:
    """Yield everything that ever happened to who is watched, oldest of a kind first; for the owner, to everybody."""

    def owns(seat: int) -> bool:
        return config.seats_of is not None and seat in state.seats and state.seats[seat].owner == config.seats_of

    def concerns(pool: int, node: str | None) -> bool:
        return pool == config.pool and (config.owner or (node is not None and node == config.node))

    for slash in state.slashes:
        mine = slash.who == config.node if slash.kind == "node" else owns(int(slash.who))
        if mine or concerns(slash.pool, None):
            key = f"slashed:{slash.kind}:{slash.who}:{slash.pool}:{slash.sequence}:{slash.tx}"
            what = f"{slash.kind} {slash.who} lost {show_tokens(slash.amount)} tokens over file {slash.sequence}"
            yield NewsItem(key, "slashed", what)
    for (pool, node), account in state.accounts.items():
        if account.ejected and concerns(pool, node):
            what = f"node {node} was ejected: {account.eject_label}"
            yield NewsItem(f"ejected:{node}:{account.eject_sequence}", "ejected", what)
    for (pool, sequence), dispute in state.disputes.items():
        submission = state.submissions.get((pool, sequence))
        if concerns(pool, submission.node if submission else None):
            what = f"file {sequence} is disputed by {dispute.disputer}"
            yield NewsItem(f"disputed:{sequence}", "disputed", what)
            if dispute.resolved:
                how = "overturned" if dispute.overturned else "upheld"
                what = f"the dispute of file {sequence} is decided: its outcome is {how}"
                yield NewsItem(f"decided:{sequence}", "dispute_decided", what)
    for (pool, sequence), canary in state.canaries.items():
        accused = [seat for seat in canary.accused if owns(seat)]
        if pool == config.pool and accused:
            what = f"file {sequence} was a canary, which seats {accused} accepted"
            yield NewsItem(f"canary:{sequence}", "canary_opened", what)
    for number, challenge in state.challenges.items():
        if not concerns(challenge.pool, challenge.node):
            continue
        files = f"{len(challenge.sequences)} files from {challenge.sequences[0]} to {challenge.sequences[-1]}"
        what = f"{challenge.accuser} accuses node {challenge.node} by {files}: node challenge {number}"
        yield NewsItem(f"challenge:{number}", "challenge_opened", what)
        if challenge.outcome is not ChallengeOutcome.OPEN:
            took = f", {show_tokens(challenge.slashed)} tokens of its stake are gone" if challenge.slashed else ""
            what = f"node challenge {number} against {challenge.node} is {challenge.outcome.name.lower()}{took}"
            yield NewsItem(
                f"challenge_decided:{number}", "challenge_decided", f"{what} (muster verify challenge {number})"
            )


CLEAR_AFTER = 3  # looks without an alarm until it is over: what flutters is told once


class WatchMemory(Document):
    """`told`: keys of events, None before the first look at the chain: what happened before is no news. `raised`:
    alarm → since (Unix seconds); `quiet`: alarm → looks without it."""

    told: frozenset[str] | None = None
    raised: dict[str, float] = Field(default_factory=dict)
    quiet: dict[str, int] = Field(default_factory=dict)


def with_alarms(
    memory: WatchMemory, present_alarms: Iterable[Alarm], unknown: frozenset[str], now: float
) -> tuple[WatchMemory, list[str], list[str]]:
    """Return the memory after a look, the alarms that begin and those that are over. `unknown`: could not be told."""
    present = {alarm.name for alarm in present_alarms}
    begun = [name for name in NAMES if name in present and name not in memory.raised]
    quiet = {name: memory.quiet.get(name, 0) + (name not in unknown) for name in memory.raised if name not in present}
    over = [name for name, looks in quiet.items() if looks >= CLEAR_AFTER]
    raised = {name: since for name, since in memory.raised.items() if name not in over} | dict.fromkeys(begun, now)
    rest = {name: looks for name, looks in quiet.items() if name not in over}
    return memory.model_copy(update={"raised": raised, "quiet": rest}), begun, over


def with_news(memory: WatchMemory, items: Iterable[NewsItem]) -> tuple[WatchMemory, list[NewsItem]]:
    """Return the memory after a look at the chain, with what is news."""
    every = list(items)
    fresh = [] if memory.told is None else [item for item in every if item.key not in memory.told]
    announced = (memory.told or frozenset()) | {item.key for item in every}
    return memory.model_copy(update={"told": announced}), fresh


# Webhooks


MOST = 1000
GIVE_UP_SECONDS = 3 * 86_400.0
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 3600.0
_SECONDS, _ANSWER_BYTES = 10.0, 1 << 16

Send = Callable[[str, bytes, Mapping[str, str]], int]


class Letter(Document):
    """One event for one webhook. `made` and `due` in Unix seconds."""

    id: str
    url: str
    body: str
    made: float
    due: float
    tries: int = 0


class OutboxDocument(Document):
    letters: tuple[Letter, ...] = ()
    dropped: int = Field(0, ge=0)


def signature(secret: bytes, time: int, body: bytes) -> str:
    """`t=<Unix seconds>,v1=<hex>`: HMAC-SHA256 over the time, a full stop and the body."""
    digest = hmac.new(secret, f"{time}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={time},v1={digest}"


def pause(tries: int) -> float:
    """Seconds until the next try after so many failed ones."""
    return min(_FIRST_PAUSE * 2.0 ** min(tries - 1, 16), _LONGEST_PAUSE)


def _save(path: Path, document: Document, mode: int) -> None:
    """Write a document, as far as the disk has room: what is only in memory is told and posted alike."""
    try:
        write_atomic(path, document.model_dump_json().encode(), mode=mode)
    except OSError as error:
        log.warning("cannot write %s: %s", path, error.strerror)


class Outbox:
    """Letters in the file `path`, at most MOST: the oldest is dropped for a new one, and counted. Thread-safe. `send`
    posts and returns the status, or raises httpx.HTTPError. Raises ConfigError for a secret that cannot be used."""

    def __init__(self, path: Path, hooks: tuple[Webhook, ...], send: Send | None = None) -> None:
        self._path, self._hooks = path, hooks
        self._secrets = {hook.url: hook.secret() for hook in hooks}
        self._send = send or post
        self._lock = threading.Lock()
        outbox = load_document(path, OutboxDocument) if path.exists() else OutboxDocument()
        self._letters = {letter.id: letter for letter in outbox.letters if letter.url in self._secrets}
        self.dropped = outbox.dropped

    @property
    def waiting(self) -> int:
        return len(self._letters)

    def put(self, event: str, fields: Mapping[str, Any], now: float) -> None:
        """A letter for every webhook that wants the event, on disk when this returns if it has room."""
        with self._lock:
            for hook in self._hooks:
                if hook.wants(event):
                    name = secrets.token_hex(16)
                    body = canonical_json({**fields, "id": name, "event": event, "time": int(now)}).decode()
                    self._letters[name] = Letter(id=name, url=hook.url, body=body, made=now, due=now)
            while len(self._letters) > MOST:
                del self._letters[next(iter(self._letters))]
                self.dropped += 1
            self._write()

    def deliver(self, now: float) -> None:
        """Try once what is due."""
        with self._lock:
            due = [letter for letter in self._letters.values() if letter.due <= now]
        for letter in due:
            body = letter.body.encode()
            headers = {
                "Content-Type": "application/json",
                "Muster-Delivery": letter.id,
                "Muster-Signature": signature(self._secrets[letter.url], int(now), body),
            }
            try:
                status = self._send(letter.url, body, headers)
                problem = "" if 200 <= status < 300 else f"status {status}"
            except httpx.HTTPError as error:
                problem = first_line(error)
            with self._lock:
                self._settle(letter, problem, now)

    def _settle(self, letter: Letter, problem: str, now: float) -> None:
        if letter.id not in self._letters:
            return  # dropped for a newer one meanwhile
        if not problem:
            del self._letters[letter.id]
        elif now - letter.made > GIVE_UP_SECONDS:
            log.warning("a webhook took nothing for three days, an event is dropped: %s", problem)
            del self._letters[letter.id]
            self.dropped += 1
        else:
            tries = letter.tries + 1
            if tries == 1:
                log.warning("a webhook does not take an event, which waits: %s", problem)
            changes = {"tries": tries, "due": now + pause(tries)}
            self._letters[letter.id] = letter.model_copy(update=changes)
        self._write()

    def _write(self) -> None:
        document = OutboxDocument(letters=tuple(self._letters.values()), dropped=self.dropped)
        _save(self._path, document, 0o600)


def post(url: str, body: bytes, headers: Mapping[str, str]) -> int:
    """Return the answer's status; redirects are not followed. Raises httpx.HTTPError."""
    with httpx.Client(transport=bounded_transport(), follow_redirects=False, timeout=_SECONDS) as client:
        request = client.build_request("POST", url, content=body, headers=dict(headers))
        return exchange(client, request, _ANSWER_BYTES, _SECONDS).status_code


def run(config_path: Path) -> NoReturn:
    """Watch until SIGINT or SIGTERM. Raises ConfigError for what a user can put right."""
    start(config_path, WatchConfig, Watcher)


class Watcher:
    """One look every few seconds; a thread posts what was seen. Raises ConfigError for a webhook's unknown event."""

    def __init__(self, config: WatchConfig) -> None:
        known = (*EVENTS, *NAMES, ALARM_OVER)
        for name in (name for hook in config.webhooks for name in hook.events if name not in known):
            raise ConfigError(f"`webhooks`: there is no event {name}", f"there are: {', '.join(known)}")
        self.config = config
        self.lookout = Lookout(config)
        self.outbox = Outbox(config.home / "outbox.json", config.webhooks)
        self._memory_path = config.home / "memory.json"
        remembered = self._memory_path.exists()
        self.memory = load_document(self._memory_path, WatchMemory) if remembered else WatchMemory()
        self.facts = Facts(now=0.0)
        self._stop = threading.Event()

    def stop(self) -> None:
        self._stop.set()

    def run(self) -> int:
        close = serve_gauges(self.config.listen, self)
        essential("webhooks", self._post).start()
        log.info("watching pool %d every %.0f s", self.config.pool, self.config.every_seconds)
        try:
            while not self._stop.is_set():
                self.once()
                self._stop.wait(self.config.every_seconds)
        finally:
            close()
        return 0

    def once(self) -> None:
        """Look once, and do what follows from it."""
        before = self.lookout.state
        self.facts = facts = self.lookout.look()
        present_alarms = alarms(self.config, facts)
        memory, begun, over = with_alarms(self.memory, present_alarms, undecided(facts), facts.now)
        for name in begun:
            alarm = next(alarm for alarm in present_alarms if alarm.name == name)
            log.warning("%s: %s; %s", name, alarm.what, alarm.hint)
            self._tell(name, alarm.what, alarm.hint)
        for name in over:
            log.info("over: %s", name)
            self._tell(ALARM_OVER, f"{name} is over", alarm=name)
        state = self.lookout.state
        if state is not None and state is not before:
            memory, fresh = with_news(memory, news(self.config, state))
            for item in fresh:
                log.warning("%s", item.what)
                self._tell(item.event, item.what)
        if memory != self.memory:
            # After the letters: a kill in between tells twice rather than never.
            _save(self._memory_path, memory, 0o644)
            self.memory = memory

    def _tell(self, event: str, what: str, hint: str = "", **more: str) -> None:
        self.outbox.put(event, {"pool": self.config.pool, "what": what, "hint": hint, **more}, self.facts.now)

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
        raised = {name: name in watcher.memory.raised for name in NAMES}
        free = {name: count or 0 for name, count in facts.free.items()}
        yield GaugeMetricFamily("muster_watch_looked_seconds", "Unix time of the last look.", facts.now)
        for name, words, label, values in (
            ("alarm", "1 while an alarm is raised.", "alarm", raised),
            ("disk_free_bytes", "Free bytes by folder.", "folder", free),
            ("transactions_left", "For how many transactions the gas is enough.", "account", facts.transactions_left),
        ):
            gauge = GaugeMetricFamily(f"muster_watch_{name}", words, labels=[label])
            for sample, value in values.items():
                gauge.add_metric([sample], value)
            yield gauge
        pool = facts.state.pools.get(watcher.config.pool) if facts.state else None
        node = facts.state.nodes.get(watcher.config.node or "") if facts.state else None
        if pool is not None and node is not None:
            yield GaugeMetricFamily("muster_watch_stake_tokens", "The node's stake.", node.stake / 1e9)
            yield GaugeMetricFamily("muster_watch_least_stake_tokens", "The pool's.", pool.terms.minStake / 1e9)
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
        server, _ = start_http_server(int(port), host.strip("[]"), registry)
    except (OSError, ValueError, OverflowError) as error:
        raise ConfigError(f"`listen` {listen}: {error}", "write HOST:PORT with a free port, or leave it out") from None
    return server.shutdown
