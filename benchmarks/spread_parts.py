"""Who is in a crowd of `benchmarks.spread_network`, and what is under way in it."""

from dataclasses import dataclass, field
from enum import IntEnum

from benchmarks.flows import Lines
from storage.sources import SourcePace
from storage.weights.fetch import PARALLEL


class NodeKind(IntEnum):
    """An honest node; one that sends wrong bytes; a byte a second; nothing; or half a shard of wrong bytes."""

    HONEST, POISON, DRIP, SILENT, BREAK = range(5)


@dataclass
class NodeCrowd:
    """`holders` have all `shards`; node 0, the origin, is spared by all but the `relays` that follow it. `sources`:
    whom each node may ask, in the order of their names; `ranks[shard][node]`: only those that stand before it.
    `orders`: in which a node wants the shards, empty if it only fetches what it is asked for. `latency`: seconds from a
    request to its first byte."""

    kinds: list[NodeKind]
    sources: list[list[int]]
    orders: list[list[int]]
    lines: Lines
    shards: int
    shard_bytes: int
    holders: frozenset[int] = frozenset({0})
    ranks: list[list[float]] | None = None
    relays: int = 0
    parallel: int = PARALLEL
    latency: float = 0.05


@dataclass(eq=False)
class ShardCall:
    """One shard that a node fetches. `begun`: its requests, the newest last."""

    node: int
    shard: int
    left: dict[int, None]
    begun: list["ShardRequest"] = field(default_factory=list)
    waiting: int = 0


@dataclass(eq=False)
class ShardRequest:
    """`row` of the table, negative once it has ended, when `got` and `wrong` say what it left."""

    call: ShardCall
    source: int
    pace: SourcePace
    patience: float
    began: float
    need: float
    givers: frozenset[int]
    row: int = -1
    suspects: frozenset[int] = frozenset()
    broken: int = 0
    sent: int = 0
    moved: float = 0.0
    anew: bool = False
    got: float = 0.0
    wrong: bool = False
