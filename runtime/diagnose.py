"""Facts about machine, process, chain, service and storage, and the alarms that follow from them. `muster watch`
collects them every few seconds, `muster doctor` and the status commands once."""

import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from chain.client import ChainClient
from chain.deployment import Address, Deployment
from chain.indexer.follower import Follower
from chain.indexer.projection import Projection
from chain.indexer.state import Standing, State, standing_of
from chain.suite import Suite
from protocol import VERSION
from protocol.api.endpoints import DASHBOARD, HEALTH, NODES, OBJECTS, READY, RELEASES, STATUS, VALIDATORS
from protocol.api.releases import Releases
from protocol.encoding import Document, parse_json, show_tokens
from protocol.errors import ConfigError, MusterError, UnreachableError, printable
from protocol.files import check_private, read_bounded
from runtime.home_status import gone, stalled
from runtime.process import DaemonConfig
from runtime.signed_client import BusyError, ClientLimits, ServiceError, SignedClient
from storage.keys import object_key
from storage.transfers import HttpObjects

Label = Annotated[str, Field(pattern=r"^[a-z0-9-]{1,32}$")]
_SECRET_BYTES = 16


def _web_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("it is no http or https URL")
    return url


class Webhook(Document):
    """Where events are posted: those in `events`, or all. `secret_file` (mode 0600) holds the secret that signs
    them."""

    url: Annotated[str, AfterValidator(_web_url)]
    secret_file: Path
    events: tuple[str, ...] = ()

    def secret(self) -> bytes:
        """Raises ConfigError for a file that is missing, readable by others or too short."""
        check_private(self.secret_file, "webhook secret ")
        secret = read_bounded(self.secret_file, 4096, "webhook secret ").strip()
        if len(secret) < _SECRET_BYTES:
            what = f"the webhook secret {self.secret_file} has {len(secret)} bytes"
            raise ConfigError(what, f"write {_SECRET_BYTES} random ones at least: openssl rand -hex 32")
        return secret

    def wants(self, event: str) -> bool:
        return not self.events or event in self.events


class WatchLimits(Document):
    """What is too little or too much: free disk, transactions that the gas is enough for, seconds off the service's
    clock, and seconds without a new policy step or a result of the process."""

    free_gib: float = Field(5.0, ge=0)
    transactions: int = Field(20, ge=1)
    clock_seconds: float = Field(5.0, ge=1)
    stall_seconds: float = Field(3600.0, ge=1)


class WatchConfig(DaemonConfig, WatchLimits):
    """Who and what is watched. `node`: its address; `seats_of`: the owner of a validator's seats; `owner`: true for the
    pool's owner, who is told of everybody; `process`: the home of a process on this machine; `service_key`: what the
    pool's service signs with; `accounts`: name → address of each key that pays gas; `folders`: name → folder whose disk
    must not fill; `listen`: HOST:PORT for Prometheus, or empty."""

    deployment: Path
    rpc: tuple[str, ...] = Field(min_length=1)
    pool: int = Field(ge=1)
    orchestrator: Annotated[str, AfterValidator(_web_url)]
    allow_private_sources: bool = False
    node: Address | None = None
    seats_of: Address | None = None
    owner: bool = False
    process: Path | None = None
    service_key: Address | None = None
    accounts: dict[Label, Address] = Field(default_factory=dict)
    folders: dict[Label, Path] = Field(default_factory=dict)
    listen: str = "127.0.0.1:9464"
    webhooks: tuple[Webhook, ...] = ()
    every_seconds: float = Field(5.0, ge=0.1, le=3600)


@dataclass(frozen=True)
class ServiceFacts:
    """From the pool's service: `problems` that it tells itself, its `version`, a `notice` of when the pool accepts ours
    no more, how many seconds our clock is ahead of its own (`clock_offset`), whether the run has `finished`. `state`
    and `phase`: what it last heard of the process that is watched, which got `done` that many files; `trouble`: what
    that lacks; `trainer`: the trainer's phase. `storage_error`: why the pool's configuration cannot be had from its
    storage."""

    ready: bool = True
    problems: tuple[str, ...] = ()
    version: str = ""
    notice: str = ""
    clock_offset: float = 0.0
    finished: bool = False
    state: str = ""
    phase: str = ""
    trouble: str = ""
    done: float | None = None
    trainer: str = ""
    storage_error: str = ""


@dataclass(frozen=True)
class Facts:
    """`now` in Unix seconds. `free`: folder's name → bytes, None for one that is not there. `transactions_left`:
    account's name → for how many transactions its gas is enough. `state`: the chain's, if it could be asked.
    `process_gone`: why the watched process is known not to run on this machine, `process_stalled`: that its computation
    does not move. `progressed`: when it last got something done."""

    now: float
    free: Mapping[str, int | None] = field(default_factory=dict)
    chain_error: str = ""
    head_age: float | None = None
    transactions_left: Mapping[str, int] = field(default_factory=dict)
    state: State | None = None
    process_gone: str = ""
    process_stalled: str = ""
    service_error: str = ""
    service: ServiceFacts | None = None
    progressed: float | None = None


_SECONDS = 4.0
_ANSWER_BYTES, _CONFIG_BYTES = 8 << 20, 1 << 20
_PROBLEMS, LONGEST = 5, 400  # problems of a service's own words, and characters of each, that go into an alarm
GAS = 1_000_000  # of a transaction at most in everyday work: relaying a lane, committing
_PATIENCE = 3.0
_COMPUTING = ("generating", "judging")


def look_at_service(
    url: str,
    *,
    node: str | None = None,
    seats_of: str | None = None,
    owner: bool = False,
    config_hash: bytes = b"",
    allow_private: bool = False,
) -> ServiceFacts:
    """Ask the service at `url`, about `node` or the seats of `seats_of`, with `owner` about the trainer too, and for
    the pool's configuration from its storage if the hash is known. A service without its database says little else.

    Raises MusterError where it does not answer as services do."""
    with closing(SignedClient(url, limits=ClientLimits(_SECONDS, 1, _SECONDS, _SECONDS))) as client:

        def ask(path: str, missing: bool = False) -> Any:
            try:
                return parse_json(client.request("GET", path, limit=_ANSWER_BYTES).content)
            except ServiceError as error:
                if missing and error.status == 404:
                    return {}
                raise

        try:
            asked = time.time()
            health = client.request("GET", HEALTH.path, limit=_ANSWER_BYTES)
            offset = clock_offset(health.headers.get("date", ""), asked, time.time())
            version = printable(str(parse_json(health.content)["version"]), 32)
            try:
                problems = ask(READY.path)["problems"]
            except BusyError:
                return ServiceFacts(ready=False, version=version, clock_offset=offset)
            status, releases = ask(STATUS.path), ask(RELEASES.path, missing=True)
            notice = Releases.model_validate(releases).notice(VERSION, status.get("step") or 0) if releases else ""
            path = f"{NODES.path}/{node}" if node else f"{VALIDATORS.path}/{seats_of}" if seats_of else ""
            own = ask(path, missing=True) if path else {}
            others = ask(DASHBOARD.path)["others"] if owner else []
            metrics = own.get("metrics", {})
            return ServiceFacts(
                problems=tuple(printable(str(problem), LONGEST) for problem in problems[:_PROBLEMS]),
                version=version,
                notice=printable(notice, 200),
                clock_offset=offset,
                finished=status.get("phase") == "finished",
                state=str(own.get("state", "")),
                phase=str(own.get("phase", "")),
                trouble=printable(str(own.get("trouble", "")), LONGEST),
                done=metrics.get("made", metrics.get("judged")),
                trainer=next((_phase(other) for other in others if other.get("role") == "trainer"), ""),
                storage_error=storage_error(client.base_url, config_hash, allow_private) if config_hash else "",
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UnreachableError(f"{client.base_url} answers what no service does", "check the URL") from None


def _phase(process: Mapping[str, Any]) -> str:
    return printable(str(process.get("phase", "")), LONGEST)


def storage_error(url: str, config_hash: bytes, allow_private: bool) -> str:
    """Return why the pool's configuration cannot be had from its storage by way of its service, or empty."""
    with closing(HttpObjects([url + OBJECTS], timeout=_SECONDS, allow_private=allow_private)) as objects:
        try:
            objects(object_key("configs", config_hash), _CONFIG_BYTES)
        except MusterError as error:
            return error.what
    return ""


def clock_offset(date: str, asked: float, answered: float) -> float:
    """Return how far our clock is ahead of a `Date` header, which has whole seconds and was written between `asked` and
    `answered` (Unix seconds); 0 without one."""
    try:
        theirs = parsedate_to_datetime(date).timestamp() + 0.5
    except (ValueError, TypeError):
        return 0.0
    ours = min(max(theirs, asked), answered)
    return ours - theirs if abs(ours - theirs) > 1.0 else 0.0


class Lookout:
    """Looks again and again; what does not answer is opened again. `state`: the chain's at the last good look."""

    def __init__(self, config: WatchConfig) -> None:
        self._config = config
        self._chain: tuple[ChainClient, Projection] | None = None
        self._done: float | None = None
        self._progressed: float | None = None
        self.state: State | None = None

    def look(self) -> Facts:
        """Raises ConfigError for what a person has to put right before the first good look at the chain."""
        now, config, chain_error, chain = time.time(), self._config, "", {}
        try:
            chain = self._look_at_chain(now)
        except MusterError as error:
            if isinstance(error, ConfigError) and self.state is None:
                raise
            chain_error = error.what
        pool = self.state.pools.get(config.pool) if self.state else None
        service, service_error = None, ""
        try:
            service = look_at_service(
                config.orchestrator,
                node=config.node,
                seats_of=config.seats_of,
                owner=config.owner,
                config_hash=pool.config_hash if pool else b"",
                allow_private=config.allow_private_sources,
            )
        except MusterError as error:
            service_error = error.what
        work_done = service.done if service else None
        if service and work_done is not None and (work_done != self._done or not service.phase.startswith(_COMPUTING)):
            self._done, self._progressed = work_done, now
        return Facts(
            now=now,
            free={name: free_bytes(path) for name, path in config.folders.items()},
            chain_error=chain_error,
            process_gone=gone(config.process) if config.process else "",
            process_stalled=stalled(config.process) if config.process else "",
            service=service,
            service_error=service_error,
            progressed=self._progressed,
            **chain,
        )

    def _look_at_chain(self, now: float) -> dict[str, Any]:
        config = self._config
        if self._chain is None:
            deployment = Deployment.load(config.deployment)
            client = ChainClient(config.rpc, deployment.chain_id, patience=_PATIENCE, timeout=_SECONDS)
            Suite(client, deployment)
            self._chain = client, Projection(Follower(client, deployment, config.home / "events.sqlite"))
        client, projection = self._chain
        projection.refresh()
        self.state = projection.state
        price = max(1, client.gas_price())
        left = {name: client.balance(address) // (GAS * price) for name, address in config.accounts.items()}
        age = max(0.0, now - client.now())
        return {"head_age": age, "transactions_left": left, "state": self.state}


def free_bytes(path: Path) -> int | None:
    """Return the free bytes of a folder's disk, None for a folder that is not there."""
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return None


_GIB = 1 << 30
_OLD_HEAD_SECONDS = 120.0
# What is asked to judge an alarm, and what to do about it; in the order in which alarms are shown.
_KINDS: dict[str, tuple[str, str]] = {
    "disk_full": ("machine", "delete what can be recomputed (caches of weights first), or give it a larger disk"),
    "clock_wrong": ("service", "let NTP set it: timedatectl set-ntp true"),
    "chain_lost": ("machine", "check the network, or name another RPC URL as well"),
    "chain_stale": ("chain", "the endpoint lags: name another RPC URL; or set the clock"),
    "service_lost": ("machine", "start it, or ask who runs it; files wait meanwhile"),
    "database_lost": ("service", "start the database; nothing is lost"),
    "service_trouble": ("service", "its log says more; see docs/guides/operations.md"),
    "storage_lost": ("service", "start the pool's storage; uploads wait meanwhile"),
    "version_behind": ("service", "muster upgrade changes this one and goes back if it does not start"),
    "gas_low": ("chain", "send it ether"),
    "stake_low": ("pool", "muster node join --stake"),
    "stake_frozen": ("pool", "see `muster node status` for the file; dispute it in time if you are wronged"),
    "ejected": ("pool", "`muster why` says why; the rest of the stake can be withdrawn"),
    "seat_out": ("pool", "muster validator judge --voter ADDRESS bonds another"),
    "key_stale": ("pool", "muster pool set-service, or start the service with the key that is named"),
    "process_gone": ("service", "see its log and exit code; start it"),
    "process_in_trouble": ("service", "its log names what is wrong and what to do"),
    "process_stalled": (
        "service",
        "look at the GPU (nvidia-smi), then start the process again; it ends by itself after ten minutes",
    ),
    "run_stalled": ("pool", "`muster pool status` says who waits for what"),
    "training_unstable": ("service", "see docs/design/training.md, Guards"),
}
NAMES = tuple(_KINDS)


@dataclass(frozen=True)
class Alarm:
    """`name` is one of NAMES; `what` is wrong, `hint` what to do."""

    name: str
    what: str

    @property
    def hint(self) -> str:
        return _KINDS[self.name][1]


def alarms(config: WatchConfig, facts: Facts) -> list[Alarm]:
    """Return alarms in the order of NAMES. What could not be asked raises its own alarm and no other."""
    raised = [*_around(config, facts), *_on_chain(config, facts)]
    if facts.service_error:
        raised.append(Alarm("service_lost", facts.service_error))
    if facts.process_gone:  # this machine knows better than the service
        raised = [alarm for alarm in raised if alarm.name != "process_gone"] + [
            Alarm("process_gone", facts.process_gone)
        ]
    return _sorted(raised)


def surroundings(limits: WatchLimits, facts: Facts) -> list[Alarm]:
    """Return what troubles machine, service, storage and process, without what only the chain can say."""
    return _sorted(_around(limits, facts))


def undecided(facts: Facts) -> frozenset[str]:
    """Return the alarms about which a look could not tell."""
    lost = {"chain": bool(facts.chain_error), "pool": facts.state is None, "service": facts.service is None}
    return frozenset(name for name, (source, _) in _KINDS.items() if lost.get(source))


def _sorted(raised: Iterable[Alarm]) -> list[Alarm]:
    return sorted(raised, key=lambda alarm: NAMES.index(alarm.name))


def _around(limits: WatchLimits, facts: Facts) -> Iterator[Alarm]:
    for name, free in facts.free.items():
        if free is None:
            yield Alarm("disk_full", f"the folder {name} is not there: its disk is not mounted, or `folders` is wrong")
        elif free < limits.free_gib * _GIB:
            yield Alarm("disk_full", f"the disk of {name} has {free / _GIB:.1f} GiB left")
    if facts.process_stalled:
        yield Alarm("process_stalled", facts.process_stalled)
    service = facts.service
    if service is None:
        return
    if abs(service.clock_offset) > limits.clock_seconds:
        yield Alarm("clock_wrong", f"this machine's clock is {service.clock_offset:+.0f} s off the service's")
    if not service.ready:
        yield Alarm("database_lost", "the service's database does not answer")
    if service.problems:
        yield Alarm("service_trouble", "; ".join(service.problems))
    if service.storage_error:
        yield Alarm("storage_lost", service.storage_error)
    if service.notice:
        yield Alarm("version_behind", service.notice)
    elif service.version and service.version != VERSION:
        yield Alarm("version_behind", f"the service is version {service.version}, this one {VERSION}")
    idle = facts.now - facts.progressed if facts.progressed is not None else 0.0
    if service.state == "dead":
        yield Alarm("process_gone", "no heartbeat comes from the process")
    elif (lacks := service.phase == "trouble" or "CANNOT SERVE" in service.phase) or service.trouble:
        what = ["the process does not get what it needs"] * lacks + [service.trouble] * bool(service.trouble)
        yield Alarm("process_in_trouble", ": ".join(what))
    elif not facts.process_stalled and idle > limits.stall_seconds:
        yield Alarm("process_stalled", f"the process computes and has got nothing done for {idle:.0f} s")
    if service.trainer.startswith("stopped: "):
        yield Alarm("training_unstable", service.trainer.removeprefix("stopped: "))


def _on_chain(config: WatchConfig, facts: Facts) -> Iterator[Alarm]:
    if facts.chain_error:
        yield Alarm("chain_lost", facts.chain_error)
    elif facts.head_age is not None and facts.head_age > _OLD_HEAD_SECONDS:
        yield Alarm("chain_stale", f"the chain's newest block is {facts.head_age:.0f} s old")
    for name, left in facts.transactions_left.items():
        if left < config.transactions:
            yield Alarm("gas_low", f"the gas of {name} ({config.accounts[name]}) is enough for {left} transactions")
    state = facts.state
    pool = state.pools.get(config.pool) if state else None
    if state is None or pool is None:
        return
    node = state.nodes.get(config.node or "")
    if node is not None and node.stake < pool.terms.minStake:
        least = show_tokens(pool.terms.minStake)
        yield Alarm("stake_low", f"the stake is {show_tokens(node.stake)}, the pool wants {least}")
    standing = standing_of(state.accounts.get((config.pool, config.node or "")))
    if standing is Standing.FROZEN:
        yield Alarm("stake_frozen", "a file was refused and the stake is frozen until that is final")
    if standing in (Standing.EJECTED, Standing.REMOVED):
        yield Alarm("ejected", f"the node was {standing}")
    for seat in state.seats.values():
        if seat.owner == config.seats_of and seat.evicted and not seat.closed:
            yield Alarm("seat_out", f"seat {seat.seat} was evicted")
    if config.service_key and pool.service != config.service_key:
        yield Alarm("key_stale", f"the chain does not name {config.service_key} as the service's key")
    age, finished = facts.now - pool.steps[-1].time if pool.steps else 0.0, facts.service and facts.service.finished
    if pool.status == "open" and age > config.stall_seconds and not finished:
        yield Alarm("run_stalled", f"policy step {pool.step} is {age:.0f} s old")
