"""One look at machine, chain and service: all input and output of the watch, gathered into `Facts`."""

import shutil
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx

from chain.client import ChainClient
from chain.deployment import Deployment
from chain.follower import Follower
from chain.projection import Projection
from chain.standing import standing_of
from chain.state import State
from chain.suite import Suite
from protocol.api.endpoints import DASHBOARD, HEALTH, NODES, OBJECTS, READY, STATUS, VALIDATORS
from protocol.encoding import parse_json
from protocol.errors import ConfigError, MusterError, UnreachableError, first_line
from protocol.http.signing import service_url
from protocol.http.transport import bounded_transport, exchange
from runtime.presence import gone
from runtime.watch.config import WatchConfig
from runtime.watch.facts import Facts, ServiceFacts, WatchedPool
from storage.download import HttpObjects
from storage.keys import object_key

GAS = 250_000
"""What a transaction takes at most in everyday work: attesting, committing, submitting a file."""
_PATIENCE, _SECONDS = 3.0, 4.0
_ANSWER_BYTES = 8 << 20
_COMPUTING = ("generating", "judging")


class ChainView:
    """The chain, followed by events of our own. Opening raises ConfigError, UnreachableError."""

    def __init__(self, config: WatchConfig) -> None:
        deployment = Deployment.load(config.deployment)
        self.client = ChainClient(config.rpc, deployment.chain_id, patience=_PATIENCE, timeout=_SECONDS)
        Suite(self.client, deployment)
        self.projection = Projection(Follower(self.client, deployment, config.home / "events.sqlite"))

    def refresh(self) -> State:
        self.projection.refresh()
        return self.projection.state


class Lookout:
    """Looks again and again; what does not answer is opened anew at the next look."""

    def __init__(self, config: WatchConfig) -> None:
        self._config = config
        self._url = service_url(config.orchestrator)
        self._http = httpx.Client(transport=bounded_transport(), timeout=_SECONDS)
        private = config.allow_private_sources
        self._objects = HttpObjects([self._url + OBJECTS], timeout=_SECONDS, allow_private=private)
        self._chain: ChainView | None = None
        self._done: float | None = None
        self._progressed: float | None = None
        self.state: State | None = None
        """The chain's state at the last look that reached it."""

    def look(self) -> Facts:
        """Raises ConfigError for what a person has to put right."""
        now, config = time.time(), self._config
        chain = self._look_at_chain(now)
        service = self._look_at_service()
        found: ServiceFacts | None = service.get("service")
        return Facts(
            now=now,
            free={name: free_bytes(path) for name, path in config.folders.items()},
            process_gone=gone(config.process) if config.process else "",
            storage_error=self._look_at_storage() if found else "",
            progressed=self._progress(found, now),
            **chain,
            **service,
        )

    def _look_at_chain(self, now: float) -> dict[str, Any]:
        config = self._config
        try:
            if self._chain is None:
                self._chain = ChainView(config)
            view = self._chain
            self.state = state = view.refresh()
            price = max(1, view.client.gas_price())
            left = {name: view.client.balance(address) // (GAS * price) for name, address in config.accounts.items()}
            age = max(0.0, now - view.client.now())
        except ConfigError:
            raise
        except MusterError as error:
            return {"chain_error": error.what}
        return {"head_age": age, "transactions_left": left, "pool": pool_facts(config, state)}

    def _look_at_service(self) -> dict[str, Any]:
        try:
            asked = time.time()
            health = self._get(HEALTH.path)
            answered = time.time()
            ready = self._get(READY.path)
            status = self._document(STATUS.path)
            own = self._own_entry()
            trainer = self._document(DASHBOARD.path)["others"] if self._config.owner else []
            phases = [str(one.get("phase", "")) for one in trainer if one.get("role") == "trainer"]
            version = str(parse_json(health.content)["version"])
            problems = tuple(map(str, parse_json(ready.content)["problems"])) if ready.status_code == 200 else ()
            done = own.get("metrics", {}).get("made", own.get("metrics", {}).get("judged"))
        except (MusterError, ValueError, KeyError, TypeError, AttributeError) as error:
            what = error.what if isinstance(error, MusterError) else f"{self._url} answers what no service does"
            return {"service_error": what}
        facts = ServiceFacts(
            ready=ready.status_code == 200,
            problems=problems,
            version=version,
            clock_offset=clock_offset(health.headers.get("date", ""), asked, answered),
            finished=status.get("phase") == "finished",
            state=str(own.get("state", "")),
            phase=str(own.get("phase", "")),
            done=done,
            trainer=phases[0] if phases else "",
        )
        return {"service": facts}

    def _own_entry(self) -> Mapping[str, Any]:
        """What the service says of the node, or of the owner of seats, that is watched."""
        if self._config.node:
            return self._document(f"{NODES.path}/{self._config.node}", missing=True)
        if self._config.seats_of:
            return self._document(f"{VALIDATORS.path}/{self._config.seats_of}", missing=True)
        return {}

    def _look_at_storage(self) -> str:
        pool = self.state.pools.get(self._config.pool) if self.state else None
        if pool is None:
            return ""
        try:
            self._objects(object_key("configs", pool.config_hash), 1 << 20)
        except MusterError as error:
            return error.what
        return ""

    def _progress(self, service: ServiceFacts | None, now: float) -> float | None:
        """When the process got something done last; None unless it computes."""
        if service is None or service.done is None:
            return self._progressed
        if service.done != self._done or not service.phase.startswith(_COMPUTING):
            self._done, self._progressed = service.done, now
        return self._progressed

    def _document(self, path: str, missing: bool = False) -> dict[str, Any]:
        answer = self._get(path)
        if missing and answer.status_code == 404:
            return {}
        if answer.status_code != 200:
            raise UnreachableError(f"{self._url}{path} answers {answer.status_code}", "see the service's log")
        found: dict[str, Any] = parse_json(answer.content)
        return found

    def _get(self, path: str) -> httpx.Response:
        try:
            return exchange(self._http, self._http.build_request("GET", self._url + path), _ANSWER_BYTES, _SECONDS)
        except httpx.HTTPError as error:
            raise UnreachableError(f"{self._url} does not answer: {first_line(error)}", "see its log") from None


def pool_facts(config: WatchConfig, state: State) -> WatchedPool | None:
    """What the chain says of the pool, the node, the seats and the key that are watched; None without the pool."""
    pool = state.pools.get(config.pool)
    if pool is None:
        return None
    node = state.nodes.get(config.node) if config.node else None
    account = state.accounts.get((config.pool, config.node)) if config.node else None
    mine = [seat for seat in state.seats.values() if seat.owner == config.seats_of and not seat.closed]
    return WatchedPool(
        step=pool.step,
        step_time=pool.steps[-1].time if pool.steps else 0,
        running=pool.status == "open",
        stake=node.stake if node else None,
        least_stake=pool.terms.minStake,
        standing=standing_of(account) if account else None,
        seats={seat.seat: "was evicted" if seat.evicted else "" for seat in mine},
        service_key_current=pool.service == config.service_key if config.service_key else None,
    )


def free_bytes(path: Path) -> int | None:
    """None for a folder that is not there."""
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return None


def clock_offset(date: str, asked: float, answered: float) -> float:
    """How far our clock is ahead of a `Date` header, which has whole seconds and was written between `asked` and
    `answered` (Unix seconds here); 0 without one that can be read."""
    try:
        theirs = parsedate_to_datetime(date).timestamp() + 0.5
    except (ValueError, TypeError):
        return 0.0
    ours = min(max(theirs, asked), answered)
    return ours - theirs if abs(ours - theirs) > 1.0 else 0.0
