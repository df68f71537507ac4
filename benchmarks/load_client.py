"""The nodes of the load benchmark, and those who look: requests at their appointed times, over kept connections.

A request's time is counted from when it was due, not from when a connection was free for it: waiting counts.
"""

import asyncio
import hashlib
import json
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.load_pool import CHAIN_ID, FILES_PER_SECOND, POOLS, NodeKey, asking, lease_id
from protocol.http.signing import Realm
from storage.keys import object_key

BEAT_SECONDS = 10.0
LOOKS_PER_SECOND = 5
TRIES = 20
SIZE = 1000
TICK = 0.005
LINES = 1024
"""Connections that all nodes share. Fewer would hold requests back before the service could take them together."""


@dataclass
class Answered:
    """What the nodes were promised, to be looked for afterwards, and how long they waited (ms)."""

    latencies: dict[str, list[float]] = field(default_factory=dict)
    statuses: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    retried: int = 0
    leases: set[str] = field(default_factory=set)
    receipts: set[str] = field(default_factory=set)
    beats: dict[str, float] = field(default_factory=dict)
    replayable: list[tuple[float, bytes]] = field(default_factory=list)


class Line(asyncio.Protocol):
    """One connection, to the first of `ports` that answers, beginning with its own. A plain protocol: asyncio's streams
    would take as much of the processor as the service does."""

    def __init__(self, ports: list[int], own: int) -> None:
        self._ports, self._own, self.home = ports, own, own
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None

    async def exchange(self, data: bytes) -> tuple[int, bytes]:
        """Status and body. Raises OSError, or EOFError when the connection ends half-way."""
        loop = asyncio.get_running_loop()
        try:
            if self._transport is None:
                await loop.create_connection(lambda: self, "127.0.0.1", self._ports[self._own])
            assert self._transport is not None
            self._received, self._answer = b"", loop.create_future()
            self._transport.write(data)
            return await self._answer
        except (OSError, EOFError):
            self._own = (self._own + 1) % len(self._ports)
            raise

    def is_away(self) -> bool:
        """Whether its own replica did not answer."""
        return self._own != self.home

    def close(self) -> None:
        """End the connection; the line is of no use afterwards."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(EOFError("the connection ended before its answer"))

    def data_received(self, data: bytes) -> None:
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0 or self._answer is None or self._answer.done():
            return
        lowered = self._received[: end + 2].lower()
        place = lowered.index(b"content-length:")
        length = int(lowered[place + 15 : lowered.index(b"\r\n", place)])
        content = self._received[end + 4 :]
        if len(content) >= length:
            self._answer.set_result((int(lowered[9:12]), content[:length]))


class SimulatedNodes:
    """Everybody, for `seconds` against replicas at `ports`, which serve `url`."""

    def __init__(self, keys: list[NodeKey], url: str, ports: list[int], bucket: Path, lines: int = LINES) -> None:
        self._keys, self._bucket = keys, bucket
        self._realm, self._ports = Realm.of(url, CHAIN_ID, POOLS), ports
        self._alive = set(range(len(ports)))
        self._idle: asyncio.Queue[Line] = asyncio.Queue()
        for number in range(lines):
            self._idle.put_nowait(Line(ports, number % len(ports)))
        self._slots = {node: lease_id(node) for node in range(asking(len(keys)), len(keys))}
        self._rng = random.Random(1)
        self._ready: dict[int, bytes] = {}
        self.answered = Answered()

    def sign_ahead(self, seconds: float) -> None:
        """Sign the heartbeats of a run that begins now: real nodes have processors of their own. Those of nodes that
        will ask for a slot have to wait for it, and are signed when they are due."""
        rate, now = len(self._keys) / BEAT_SECONDS, time.time()
        for number in range(int(seconds * rate)):
            node = number % len(self._keys)
            if node in self._slots:
                self._ready[number] = self._signed(node, "/v1/heartbeats", self._beat_body(node), now + number / rate)

    async def run(self, seconds: float) -> None:
        """Heartbeats of every node every ten seconds, files, looks; returns when all are answered."""
        began = time.monotonic()
        plans = [
            (len(self._keys) / BEAT_SECONDS, self._beat),
            (float(FILES_PER_SECOND), self._file),
            (float(LOOKS_PER_SECOND), self._look),
        ]
        sent = [0] * len(plans)
        tasks: set[asyncio.Task[None]] = set()
        while (now := time.monotonic() - began) < seconds:
            for place, (rate, act) in enumerate(plans):
                while sent[place] < now * rate:
                    due = began + sent[place] / rate
                    tasks.add(task := asyncio.create_task(act(sent[place], due)))
                    task.add_done_callback(tasks.discard)
                    sent[place] += 1
            await asyncio.sleep(TICK)
        await asyncio.gather(*tasks)

    def ended(self, replica: int) -> None:
        """One that takes nothing more."""
        self._alive.discard(replica)

    def ready(self, replica: int) -> None:
        """One that says that it is ready again: what it used to take goes to it, as a balancer would see to."""
        self._alive.add(replica)

    async def replay(self, port: int) -> int:
        """Send again what was answered before, while it is still in its time; how many were taken twice."""
        line, taken = Line([port], 0), 0
        fresh = [data for at, data in self.answered.replayable if time.time() - at < 45]
        for data in fresh[-200:]:
            status, _ = await line.exchange(data)
            taken += status != 409
        self.answered.statuses["replayed"] += len(fresh[-200:])
        return taken

    def _beat_body(self, node: int) -> bytes:
        body: dict[str, Any] = {"role": "worker", "name": f"node {node}", "phase": "generating", "step": 0}
        if node in self._slots:
            body["slot"] = self._slots[node]
        return json.dumps(body).encode()

    async def _beat(self, number: int, due: float) -> None:
        node = number % len(self._keys)
        await self._post(node, "/v1/heartbeats", self._beat_body(node), due, self._ready.pop(number, None))
        self.answered.beats[self._keys[node].address] = time.time()

    async def _file(self, number: int, due: float) -> None:
        """A node asks for a slot, then another one's file is made: ticket, upload, receipt."""
        node = number % asking(len(self._keys))
        slot = await self._asked(node, "/v1/slots", {}, due)
        if slot and "slot" in slot:
            self._slots[node] = slot["slot"]
            self.answered.leases.add(slot["slot"])
        sha = hashlib.sha256(b"load file %d %f" % (number, due)).hexdigest()
        wanted = {"kind": "rollouts", "sha256": sha, "size": SIZE}
        ticket = await self._asked(node, "/v1/uploads", wanted, time.monotonic())
        if ticket and not ticket["exists"]:
            (self._bucket / object_key("rollouts", bytes.fromhex(sha)).replace("/", "_")).write_bytes(bytes(SIZE))
        if await self._asked(node, "/v1/receipts", {"sha256": sha, "size": SIZE}, time.monotonic()):
            self.answered.receipts.add(sha)

    async def _look(self, number: int, due: float) -> None:
        path = ("/v1/status", "/health", "/ready")[number % 3]
        await self._sent(path, due, lambda: b"GET %s HTTP/1.1\r\nHost: load\r\n\r\n" % path.encode())

    async def _asked(self, node: int, path: str, body: dict[str, Any], due: float) -> Any:
        """The answer's document, None after an error."""
        content = await self._post(node, path, json.dumps(body).encode(), due)
        return None if content is None else json.loads(content)

    async def _post(self, node: int, path: str, body: bytes, due: float, ready: bytes | None = None) -> bytes | None:
        """`ready`: the request, signed; at a second try it is signed anew, like all others at their first."""
        left = [ready] if ready is not None else []
        return await self._sent(path, due, lambda: left.pop() if left else self._signed(node, path, body, time.time()))

    def _signed(self, node: int, path: str, body: bytes, now: float) -> bytes:
        headers = self._keys[node].sign(self._realm, path, body, now, self._rng.randbytes(32))
        request = b"POST %s HTTP/1.1\r\nHost: load\r\nContent-Type: application/json\r\n" % path.encode()
        return request + headers + b"Content-Length: %d\r\n\r\n" % len(body) + body

    async def _sent(self, path: str, due: float, make: Callable[[], bytes]) -> bytes | None:
        """The answer, None after an error. A connection that ends is tried again, signed anew, elsewhere."""
        status, content = await self._tried(make)
        kept = self.answered
        kept.latencies.setdefault(path, []).append(1000 * (time.monotonic() - due))
        kept.statuses[f"{path} {status}"] += 1
        if status != 200:
            kept.errors[f"{path} {status} {content[:80]!r}"] += 1
            return None
        return content

    async def _tried(self, make: Callable[[], bytes]) -> tuple[int, bytes]:
        for attempt in range(TRIES):
            line = await self._idle.get()
            if line.is_away() and line.home in self._alive:
                line.close()
                line = Line(self._ports, line.home)
            try:
                data = make()
                answer = await line.exchange(data)
                if data.startswith(b"POST") and self._rng.random() < 0.01:
                    self.answered.replayable.append((time.time(), data))
                return answer
            except (OSError, EOFError):
                self.answered.retried += 1
            finally:
                self._idle.put_nowait(line)
            await asyncio.sleep(0.02 * attempt)
        return 0, b"no replica answers"


async def at(seconds: float, act: Callable[[], Awaitable[None]]) -> None:
    """Do something after so many seconds."""
    await asyncio.sleep(seconds)
    await act()
