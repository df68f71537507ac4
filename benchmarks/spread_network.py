"""Nodes that fetch one step's shards from each other on a virtual network, by the scheduling code of `storage.sources`.

What in reality are threads, sockets and bytes (`storage.sources`, `storage.transfers`, `storage.relay`) is a table of
streams here; which source is asked, when another one is, and who is believed how much, is the same code. A node that
is asked for what it lacks fetches it and passes it on as it comes, but for the last byte, which waits for the hash.
"""

import heapq
from collections import deque

import numpy as np
from numpy.typing import NDArray

from benchmarks.flows import Streams
from benchmarks.spread_parts import NodeCrowd, NodeKind, ShardCall, ShardRequest
from storage.relay.cache import AGAIN_SECONDS
from storage.relay.cache import PARALLEL as FLIGHTS
from storage.sources import LEAST_PATIENCE, RequestEnd, SourceChoice, is_late
from storage.transfers import HURRIED_TRIES

REQUEST_SECONDS = 60.0
RETRY_SECONDS = 0.4


class Simulation:
    """`seconds`: when each node had everything, infinite before; `sent`: bytes of each."""

    def __init__(self, crowd: NodeCrowd, slice_seconds: float = 0.05) -> None:
        self.crowd, self._slice, self._size = crowd, slice_seconds, float(crowd.shard_bytes)
        nodes, shards = len(crowd.kinds), crowd.shards
        self.now, self.seconds, self.sent = 0.0, np.full(nodes, np.inf), np.zeros(nodes)
        spared = [{0} if node > crowd.relays else set[int]() for node in range(nodes)]
        self._choices = [SourceChoice(names, spared[node]) for node, names in enumerate(crowd.sources)]
        self._streams = Streams()
        self._requests: dict[int, ShardRequest] = {}
        self._kinds = np.array(crowd.kinds)
        self._honest = [kind is NodeKind.HONEST for kind in crowd.kinds]
        self._done = np.zeros((nodes, shards), bool)
        self._done[list(crowd.holders)] = True
        self._have = np.where(self._done, self._size, 0.0)
        self._wrong = np.zeros((nodes, shards), bool)
        for kind, have in (
            (NodeKind.POISON, self._size),
            (NodeKind.DRIP, self._size),
            (NodeKind.BREAK, self._size // 2),
        ):
            self._have[self._kinds == kind] = have
        self._done[self._kinds == NodeKind.POISON] = True
        self._wrong[self._kinds != NodeKind.HONEST] = True
        self._flying: list[dict[int, ShardCall]] = [{} for _ in range(nodes)]
        self._queues: list[deque[int]] = [deque() for _ in range(nodes)]
        self._queued: list[set[int]] = [set() for _ in range(nodes)]
        self._own: list[deque[int]] = [deque(order) for order in crowd.orders]
        self._ahead: list[set[int]] = [set() for _ in range(nodes)]
        self._left = [len(order) for order in crowd.orders]
        self._later: list[tuple[float, int, ShardRequest | tuple[int, int]]] = []
        self._count = 0
        self.unserved = sum(bool(order) for order in crowd.orders)
        for node in range(nodes):
            self._fill(node)

    def run(self, most_seconds: float) -> None:
        """Until every node that wants something has it."""
        while self.unserved and self.now < most_seconds:
            self.advance()

    def share(self) -> float:
        """Of all shards that somebody wants, how many are there."""
        wanted = sum(map(len, self.crowd.orders))
        return 1.0 - sum(self._left[node] for node, order in enumerate(self.crowd.orders) if order) / wanted

    def advance(self) -> None:
        """One slice."""
        table = self._streams
        self.now += self._slice
        rows = np.flatnonzero(table.active & (table.since <= self.now))
        source, sink, shard = table.source[rows], table.sink[rows], table.shard[rows]
        have = np.where(self._done[source, shard], self._size, np.minimum(self._have[source, shard], self._size - 1))
        room = np.maximum(have - table.got[rows], 0.0)
        room[self._kinds[source] == NodeKind.DRIP] = self._slice
        brought = self.crowd.lines.brought(source, sink, room, self._slice)
        self.sent += np.bincount(source, brought, len(self.sent))
        table.got[rows] += brought
        table.own[rows] += brought
        table.wrong[rows] |= self._wrong[source, shard] & (brought > 0)
        self._pass_on(rows)
        whole = rows[table.got[rows] >= self._size - 0.5]
        ended = rows[(self._kinds[source] == NodeKind.BREAK) & (table.got[rows] >= self._size // 2 - 0.5)]
        for row in map(int, whole):
            if (request := self._requests.get(row)) is not None:
                self._whole(request)
        for row in map(int, ended):
            if (request := self._requests.get(row)) is not None and request.source == table.source[row]:
                self._break_off(request)
        while self._later and self._later[0][0] <= self.now:
            _, _, what = heapq.heappop(self._later)
            if isinstance(what, ShardRequest):
                self._look(what)
            else:
                self._want(*what)

    def _pass_on(self, rows: NDArray[np.int64]) -> None:
        """What came furthest is what a node can send on."""
        table = self._streams
        further = rows[table.got[rows] > self._have[table.sink[rows], table.shard[rows]]]
        further = further[np.argsort(table.got[further], kind="stable")]
        sink, shard = table.sink[further], table.shard[further]
        self._have[sink, shard] = table.got[further]
        self._wrong[sink, shard] = table.wrong[further]

    def _want(self, node: int, shard: int) -> None:
        """Somebody asked the node for a shard."""
        if not self._honest[node] or shard in self._flying[node] or self._done[node, shard]:
            return
        if shard not in self._queued[node]:
            self._queued[node].add(shard)
            self._queues[node].append(shard)
        self._fill(node)

    def _fill(self, node: int) -> None:
        """Begin what the node has room for: its own few, and what others asked it for, in the order they came."""
        if not self._honest[node]:
            return
        own, ahead, queue, queued = self._own[node], self._ahead[node], self._queues[node], self._queued[node]
        while own and len(ahead) < self.crowd.parallel:
            shard = own.popleft()
            if not self._done[node, shard]:
                ahead.add(shard)
                if shard not in self._flying[node] and shard not in queued:
                    queued.add(shard)
                    queue.append(shard)
        while queue and len(self._flying[node]) < max(FLIGHTS, self.crowd.parallel):
            shard = queue.popleft()
            queued.discard(shard)
            call = ShardCall(node, shard, dict.fromkeys(self._upstream(node, shard)))
            self._flying[node][shard] = call
            self._begin(call)

    def _upstream(self, node: int, shard: int) -> list[int]:
        """Whom it may ask: the origin, and who comes before it in this shard's order, so that no two wait for each
        other."""
        names, ranks = self.crowd.sources[node], self.crowd.ranks
        if ranks is None:
            return names
        of_shard = ranks[shard]
        own = of_shard[node]
        return [name for name in names if of_shard[name] < own]

    def _begin(self, call: ShardCall) -> None:
        choice, table = self._choices[call.node], self._streams
        usable = [one for one in call.begun if not any(choice.is_spoilt(who) for who in (one.source, *one.givers))]
        before = max(usable, key=self._got, default=None)
        start = self._got(before) if before is not None else 0.0
        wrong = before is not None and (bool(table.wrong[before.row]) if before.row >= 0 else before.wrong)
        givers = before.givers | {before.source} if before is not None and start else frozenset[int]()
        source, patience = choice.begin(call.left, int(self._size), int(start))
        del call.left[source]
        need = max(1.0, self._size - start)
        request = ShardRequest(call, source, choice.pace(source), patience, self.now, need, givers)
        request.moved = self.now
        request.row = table.add(source, call.node, call.shard, start, self.now + self.crowd.latency, wrong)
        self._requests[request.row] = request
        call.begun.append(request)
        call.waiting += 1
        self._at(LEAST_PATIENCE, request)
        self._at(self.crowd.latency / 2, (source, call.shard))

    def _got(self, request: ShardRequest) -> float:
        return float(self._streams.got[request.row]) if request.row >= 0 else request.got

    def _at(self, seconds: float, what: ShardRequest | tuple[int, int]) -> None:
        self._count += 1
        heapq.heappush(self._later, (self.now + seconds, self._count, what))

    def _look(self, request: ShardRequest) -> None:
        """Whether another source has to be asked too."""
        call, row = request.call, request.row
        if row < 0:
            return
        taken = self.now - request.began
        if taken > REQUEST_SECONDS:
            return self._failed(request)
        watched = request.patience and request is call.begun[-1]
        if watched:
            own = int(self._streams.own[row])
            if own > request.sent:
                request.sent, request.moved = own, self.now
            if is_late(taken, self.now - request.moved, own, int(request.need), request.patience):
                request.patience = watched = 0.0
                self._choices[call.node].overdue(request.source)
                if call.left:
                    self._begin(call)
        self._at(LEAST_PATIENCE if watched else REQUEST_SECONDS - taken + self._slice, request)

    def _whole(self, request: ShardRequest) -> None:
        """All bytes are here: do they have the hash?"""
        call, table, row = request.call, self._streams, request.row
        if not table.wrong[row]:
            return self._succeeded(request)
        mixed = bool(request.givers or request.broken) and not request.anew
        table.got[row] = table.start[row] = 0.0
        table.wrong[row] = False
        if mixed:
            request.suspects, request.givers, request.anew = request.givers, frozenset(), True
            table.since[row] = self.now + self.crowd.latency
        else:
            self._failed(request)
        self._doubted(call)

    def _doubted(self, call: ShardCall) -> None:
        """What a node had of a shard is void: whoever was sent some of it is cut off."""
        furthest = max((one for one in call.begun if one.row >= 0), key=self._got, default=None)
        self._have[call.node, call.shard] = self._got(furthest) if furthest is not None else 0.0
        self._wrong[call.node, call.shard] = furthest is not None and bool(self._streams.wrong[furthest.row])
        self._cut_off(call.node, call.shard)

    def _cut_off(self, node: int, shard: int) -> None:
        table = self._streams
        for row in table.of(node, shard):
            if table.own[row] and table.wrong[row]:
                self._break_off(self._requests[row])

    def _break_off(self, request: ShardRequest) -> None:
        """The source ended its answer too early; it is asked again a little later, and then no more."""
        request.broken += 1
        if request.broken >= HURRIED_TRIES:
            return self._failed(request)
        self._streams.since[request.row] = self.now + RETRY_SECONDS
        self._at(RETRY_SECONDS, (request.source, request.call.shard))

    def _succeeded(self, request: ShardRequest) -> None:
        call = request.call
        node, shard = call.node, call.shard
        wrong = self._streams.wrong
        doubted = any(one.wrong or one.suspects or (one.row >= 0 and wrong[one.row]) for one in call.begun)
        self._end(request, RequestEnd.WHOLE)
        for one in call.begun:
            if one.row >= 0:
                self._end(one, RequestEnd.ABANDONED)
        self._done[node, shard], self._have[node, shard], self._wrong[node, shard] = True, self._size, False
        del self._flying[node][shard]
        if doubted:
            self._cut_off(node, shard)
        self._ahead[node].discard(shard)
        self._left[node] -= 1
        if not self._left[node]:
            self.seconds[node] = self.now
            self.unserved -= 1
        self._fill(node)

    def _failed(self, request: ShardRequest) -> None:
        call = request.call
        self._end(request, RequestEnd.FAILED)
        if call.left:
            self._begin(call)
        elif not call.waiting:
            del self._flying[call.node][call.shard]
            self._have[call.node, call.shard] = 0.0
            self._cut_off(call.node, call.shard)
            self._at(AGAIN_SECONDS, (call.node, call.shard))
            self._fill(call.node)

    def _end(self, request: ShardRequest, outcome: RequestEnd) -> None:
        table, row = self._streams, request.row
        request.got, request.wrong = float(table.got[row]), bool(table.wrong[row])
        size, seconds = int(table.own[row]), self.now - request.began
        self._choices[request.call.node].ended(request.pace, outcome, size, seconds, request.suspects)
        request.call.waiting -= 1
        request.row = -1
        del self._requests[row]
        table.drop(row)
