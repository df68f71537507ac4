"""Random schedules for the indexer: the chain grows and reorganises, endpoints fail, lie and lag, processes restart.

Whatever happened, once the endpoint is honest again the state must equal one that is rebuilt from scratch.
"""

import json
import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.support.made_up_chain import CHAIN_ID, Endpoint, MadeUpChain, deployment
from chain.indexer.follower import Follower
from chain.indexer.projection import Projection
from chain.indexer.state import State
from chain.rpc import BadAnswer, ChainReader, FailoverProvider
from protocol.encoding import parse_json
from protocol.errors import MusterError

DEEPEST = 64
ROUNDS = 24
NODES = 20  # few, for every restart reads their registrations again


class LocalProvider(FailoverProvider):
    """The real provider over an endpoint in this process: everything but the socket. `shaky`: the chance that an
    exchange fails as connections do."""

    def __init__(self, endpoint: Endpoint, rng: random.Random, shaky: float = 0.0) -> None:
        super().__init__(["http://made-up.invalid"], CHAIN_ID, patience=0.0)
        self.endpoint, self.rng, self.shaky = endpoint, rng, shaky

    def _post(self, url: str, body: Any) -> Any:
        if self.rng.random() < self.shaky:
            raise BadAnswer(self.rng.choice(["status 429", "status 502", "ReadTimeout", "not a JSON-RPC answer"]))
        return parse_json(json.dumps(self.endpoint.answer(body)))


@dataclass
class Faults:
    """What an endpoint does to answers; every kind with the chance `rate`. `counts`: how often each happened."""

    chain: MadeUpChain
    rng: random.Random
    rate: float
    counts: dict[str, int] = field(default_factory=dict)
    short: set[str] = field(default_factory=set)

    def __call__(self, method: str, params: list[Any]) -> dict[str, Any] | None:
        if method == "eth_chainId" or self.rng.random() >= self.rate:
            return None
        kind = self.rng.choice(
            ("error", "reorganised", "lagging") + ("repeated", "missing") * (method == "eth_getLogs")
        )
        answer = getattr(self, f"_{kind}")(method, params)
        if answer is not None:
            self.counts[kind] = self.counts.get(kind, 0) + 1
        return answer  # type: ignore[no-any-return]

    def _error(self, method: str, params: list[Any]) -> dict[str, Any]:
        return {"error": {"code": self.rng.choice((-32000, -32005, -32603)), "message": "header not found"}}

    def _reorganised(self, method: str, params: list[Any]) -> None:
        """The chain changes between two questions, or between two parts of one."""
        self.counts["reorganised"] = self.counts.get("reorganised", 0) + 1
        reorganise(self.chain, self.rng)

    def _lagging(self, method: str, params: list[Any]) -> dict[str, Any] | None:
        """Another replica answers, which is some blocks behind."""
        behind = MadeUpChain(blocks=self.chain.blocks[: max(1, len(self.chain.blocks) - self.rng.randint(1, 5))])
        return Endpoint(behind)._honest(method, params)

    def _repeated(self, method: str, params: list[Any]) -> dict[str, Any] | None:
        """Logs twice, or out of order."""
        answer = Endpoint(self.chain)._honest(method, params)
        logs = answer.get("result") or []
        if len(logs) < 2:
            return None
        self.rng.choice((lambda: logs.append(logs[0]), logs.reverse))()
        return answer

    def _missing(self, method: str, params: list[Any]) -> dict[str, Any] | None:
        """Without some logs, by an index that is behind; the same question gets its whole answer next time."""
        logs = Endpoint(self.chain)._honest(method, params).get("result")
        question = json.dumps(params)
        if not logs or question in self.short:
            self.short.discard(question)
            return None
        self.short.add(question)
        return {"result": logs[: self.rng.randrange(len(logs))]}


def reorganise(chain: MadeUpChain, rng: random.Random) -> None:
    """Replace up to 64 blocks by as many or some more, or fewer, of another branch."""
    depth = rng.randint(1, min(DEEPEST, len(chain.blocks) - 1))
    chain.fork(depth, max(1, depth + rng.randint(-2, 3)), rng.getrandbits(32))


def whole(state: State) -> State:
    """The same state with everything in memory that was archived."""
    files = [(pool.pool, sequence) for pool in state.pools.values() for sequence in pool.sequences]
    return replace(
        state,
        submissions={key: state.submissions[key] for key in files},
        lanes={(lane.pool, lane.lane): lane for pool in state.pools for lane in state.lanes_of(pool)},
        mirrors={key: state.mirrors[key] for key in files if key in state.mirrors},
        payments=list(state.all_payments()),
        archived_payments=0,
        accounts={key: replace(account, archived_hint=-1) for key, account in state.accounts.items()},
    )


def fresh(chain: MadeUpChain, folder: Path) -> State:
    """The whole state by an honest endpoint, from an empty file."""
    reader = ChainReader(LocalProvider(Endpoint(chain), random.Random(0)))
    follower = Follower(reader, deployment(), folder / "fresh.sqlite")
    projection = Projection(follower)
    projection.refresh()
    state = whole(projection.state)
    follower.close()
    return state


def run_schedule(seed: int, folder: Path) -> tuple[bool, dict[str, int]]:
    """Whether the state after a random schedule equals the one rebuilt from scratch, and the faults by kind."""
    rng = random.Random(seed)
    chain = MadeUpChain(nodes=NODES)
    chain.grow(rng.randint(1, 150))
    faults = Faults(chain, rng, rate=0.0)
    provider = LocalProvider(Endpoint(chain, most=rng.choice((10_000, 2_500)), fault=faults), rng)
    reader = ChainReader(provider)
    follower = Follower(reader, deployment(), folder / "events.sqlite")
    projection = Projection(follower)
    for _ in range(ROUNDS):
        faults.rate, provider.shaky = rng.choice(((0.0, 0.0), (0.02, 0.02), (0.1, 0.1)))
        happened = rng.random()
        if happened < 0.4:
            chain.grow(rng.choice((1, 2, 5, 90)), rng.getrandbits(8))
        elif happened < 0.7:
            reorganise(chain, rng)
        elif happened < 0.85:
            follower.close()
            follower = _restarted(provider, faults, reader, folder)
            projection = Projection(follower)
        try:
            projection.refresh()
        except MusterError:
            faults.counts["failed polls"] = faults.counts.get("failed polls", 0) + 1
    faults.rate = provider.shaky = 0.0
    chain.grow(3)
    projection.refresh()
    while projection.state.head < chain.head.number:
        projection.refresh()
    same = whole(projection.state) == _as_of(chain, projection.state.head, folder)
    follower.close()
    return same, faults.counts


def _restarted(provider: LocalProvider, faults: Faults, reader: ChainReader, folder: Path) -> Follower:
    """A new process over the same file; it starts while the endpoint answers."""
    rates, (faults.rate, provider.shaky) = (faults.rate, provider.shaky), (0.0, 0.0)
    again = Follower(reader, deployment(), folder / "events.sqlite")
    faults.rate, provider.shaky = rates
    return again


def _as_of(chain: MadeUpChain, head: int, folder: Path) -> State:
    return fresh(MadeUpChain(blocks=chain.blocks[: head + 1]), folder)
