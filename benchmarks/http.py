"""100,000 hostile requests against a process of the service: nothing may fail it, and nothing wrong be accepted.

`python -m benchmarks http [--quick] [--count N] [--seed S]`. Keys: `requests` sent; `server_errors`: answers of 5xx,
and times that the process did not answer a sound request; `wrongly_accepted`: answers of 2xx or 3xx to what had to be
refused, replays included; `sound`: [sound requests, of which were answered with 200]; `kinds`: kind → requests;
`statuses`: how often each was answered (0: the connection was ended without an answer); `slow`: connections that sent
a body or a head a byte at a time, and how many of them were ended; `examples`: of what should not have happened;
`seconds`, `rss_mb`: of the process, at the end.
"""

import asyncio
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import Any

import psutil

from benchmarks.load import CHAIN_ID, POOLS, Fleet, NodeKey, node_keys
from benchmarks.support.made_up_chain import address
from protocol.http.signing import AuthScope
from protocol.signing import HALF_ORDER

ORDER = 2 * HALF_ORDER + 1
POSTS: dict[str, dict[str, Any]] = {
    "/v1/heartbeats": {"role": "worker", "phase": "generating"},
    "/v1/leases": {},
    "/v1/uploads": {"kind": "rollouts", "sha256": "ab" * 32, "size": 1000},
    "/v1/receipts": {"sha256": "cd" * 32, "size": 1000},
    "/v1/steps": {"step": 0},
}
PUBLIC = ("/", "/health", "/ready", "/docs", "/openapi.json", "/metrics", "/v1/pool", "/v1/nodes", "/v1/search?q=0x1")
ODD_PATHS = (
    b"/v1/objects/../../etc/passwd", b"/v1/objects/%2e%2e/%2e%2e", b"//v1/leases", b"/v1/leases/", b"/v1/leases;x",
    b"*", b"/v1/nodes/0x" + b"f" * 5000, b"/%00", b"/\xff\xfe", b"/v1/submissions/-1", b"/v1/submissions/" + b"9" * 400,
    b"/v1/nodes?limit=100000000&after=-5", b"/v1/policy-steps?after=nan", b"/v1/search?q=" + b"%f0%9f" * 50,
    b"http://elsewhere/v1/leases", b"/v1/submissions?status=%27%3b--", b"/v1/objects/rollouts/" + b"a" * 64 + b"%0a",
)  # fmt: skip
ODD_BODIES = (
    b"", b"null", b"[]", b"{", b"\xff\xfe", b'{"role":"worker","role":"worker"}', b'{"role":NaN}', b'{"role":1e999}',
    b"[" * 30_000, b'{"role":"worker","step":' + b"9" * 5000 + b"}", b'{"role":"owner"}',
    b'{"role":"worker","name":"\\ud800"}', b'{"role":"worker","name":"a\\u0000b"}', b'{"role":"worker","step":-1}',
    b'{"role":"worker","metrics":{"a":"b"}}', b"{" + b",".join(b'"%x":0' % n for n in range(4000)) + b"}",
    b'{"role":"worker","waits":[' + b",".join([b'{"what":"x","since":0}'] * 17) + b"]}",
)  # fmt: skip
METHODS = (b"GET", b"PUT", b"DELETE", b"PATCH", b"OPTIONS", b"TRACE", b"HEAD", b"CONNECT", b"BREW")


class Expect(Enum):
    TAKEN = "taken"
    REFUSED = "refused"
    ANY = "any"


@dataclass(frozen=True)
class Signed:
    """A request before it is sent; `headers`: lines without their ends."""

    path: str
    body: bytes
    headers: tuple[bytes, ...]
    method: bytes = b"POST"

    def wire(self) -> bytes:
        lines = (b"%s %s HTTP/1.1" % (self.method, self.path.encode("latin-1")), b"Host: load", *self.headers)
        return b"\r\n".join((*lines, b"Content-Length: %d" % len(self.body), b"", self.body))


Made = tuple[str, Expect, bytes]
"""Kind, what must become of it, and the bytes."""


class HostileRequests:
    """An endless stream of requests to the service of `auth_scope`, whose pool `keys` have joined."""

    def __init__(self, keys: list[NodeKey], auth_scope: AuthScope, seed: int) -> None:
        self._keys, self._auth_scope, self._rng = keys, auth_scope, random.Random(seed)
        self._stranger = NodeKey(-1)
        self._kinds: list[Callable[[], Made]] = [
            self._sound, self._signature, self._signature, self._headers, self._changed, self._elsewhere, self._clock,
            self._unknown, self._path, self._method, self._body, self._body, self._large, self._flood, self._framing,
        ]  # fmt: skip

    def __iter__(self) -> Iterator[Made]:
        while True:
            yield self._rng.choice(self._kinds)()

    def sound(
        self, key: NodeKey | None = None, auth_scope: AuthScope | None = None, now: float | None = None
    ) -> Signed:
        """A heartbeat that the service takes, unless one of the arguments is odd."""
        return self._signed("/v1/heartbeats", json.dumps(POSTS["/v1/heartbeats"]).encode(), key, auth_scope, now)

    def _signed(
        self,
        path: str,
        body: bytes,
        key: NodeKey | None = None,
        auth_scope: AuthScope | None = None,
        now: float | None = None,
    ) -> Signed:
        key, nonce = key or self._rng.choice(self._keys), self._rng.randbytes(32)
        headers = key.sign(auth_scope or self._auth_scope, path, body, time.time() if now is None else now, nonce)
        return Signed(path, body, tuple(f"{name}: {value}".encode() for name, value in headers.items()))

    def _any_post(self, **how: Any) -> Signed:
        path = self._rng.choice(list(POSTS))
        return self._signed(path, json.dumps(POSTS[path]).encode(), **how)

    def _sound(self) -> Made:
        return "sound", Expect.TAKEN, self.sound().wire()

    def _signature(self) -> Made:
        given = self._any_post()
        raw = bytearray.fromhex(given.headers[3].rpartition(b"0x")[2].decode())
        how = self._rng.randrange(6)
        if how == 0:
            raw[self._rng.randrange(65)] ^= 1 << self._rng.randrange(8)
        elif how == 1:
            raw[:64] = self._rng.randbytes(64)
        elif how == 2:  # the same signature, in its other form
            raw[32:64] = (ORDER - int.from_bytes(raw[32:64], "big")).to_bytes(32, "big")
            raw[64] = 55 - raw[64]
        elif how == 3:
            raw[64] = self._rng.choice((0, 1, 26, 29, 255))
        elif how == 4:
            raw = raw[: self._rng.randrange(65)]
        else:
            raw[self._rng.choice((0, 32)) :][:32] = bytes(32)
            raw[32:64] = bytes(32)
        lines = (*given.headers[:3], b"X-Muster-Signature: 0x" + bytes(raw).hex().encode())
        return "signature", Expect.REFUSED, replace(given, headers=lines).wire()

    def _headers(self) -> Made:
        given, place = self._any_post(), self._rng.randrange(4)
        lines = list(given.headers)
        how = self._rng.randrange(5)
        if how == 0:
            del lines[place]
        elif how == 1:
            lines.append(lines[place])
        elif how == 2:
            lines[place] = lines[place].replace(b"0x", b"0X").replace(b"Time: ", b"Time: +")
        elif how == 3:
            lines.append(b"X-Muster-Chain: 1")
        else:
            lines[0] = b"X-Muster-Address: " + self._rng.choice(self._keys[:50]).address.encode().lower()[:-1] + b"z"
        return "headers", Expect.REFUSED, replace(given, headers=tuple(lines)).wire()

    def _changed(self) -> Made:
        """Signed, then changed on its way."""
        given = self._any_post()
        changes = (
            replace(given, body=given.body + b" "),
            replace(given, body=b"{}" if given.body != b"{}" else b'{"counter":1}'),
            replace(given, path=given.path + "?x=1"),
            replace(given, path=next(path for path in POSTS if path != given.path)),
            replace(given, headers=(b"X-Muster-Address: " + self._stranger.address.encode(), *given.headers[1:])),
        )
        return "changed", Expect.REFUSED, self._rng.choice(changes).wire()

    def _elsewhere(self) -> Made:
        own = self._auth_scope
        auth_scopes = (
            replace(own, chain_id=1),
            replace(own, pools=address(77)),
            replace(own, audience=own.audience + "/"),
            replace(own, audience=own.audience.replace("http:", "https:")),
            replace(own, audience="http://127.0.0.1:1"),
        )
        return "elsewhere", Expect.REFUSED, self._any_post(auth_scope=self._rng.choice(auth_scopes)).wire()

    def _clock(self) -> Made:
        off = self._rng.choice((-1, 1)) * self._rng.choice((75, 3600, 10**6, 10**9))
        return "clock", Expect.REFUSED, self._any_post(now=max(1.0, time.time() + off)).wire()

    def _unknown(self) -> Made:
        return "stranger", Expect.REFUSED, self._any_post(key=self._stranger).wire()

    def _path(self) -> Made:
        path = self._rng.choice((*ODD_PATHS, b"/" + self._rng.randbytes(12).replace(b"\r", b"").replace(b"\n", b"")))
        return "path", Expect.ANY, b"GET %s HTTP/1.1\r\nHost: load\r\n\r\n" % path

    def _method(self) -> Made:
        path = self._rng.choice((*POSTS, *PUBLIC)).encode()
        method = self._rng.choice(METHODS)
        return "method", Expect.ANY, b"%s %s HTTP/1.1\r\nHost: load\r\nContent-Length: 0\r\n\r\n" % (method, path)

    def _body(self) -> Made:
        body = self._rng.choice(ODD_BODIES)
        return "body", Expect.REFUSED, self._signed("/v1/heartbeats", body).wire()

    def _large(self) -> Made:
        given = self._any_post()
        if self._rng.random() < 0.5:
            return "large", Expect.REFUSED, replace(given, path="/v1/heartbeats", body=b" " * 70_000).wire()
        size = self._rng.choice((b"2000000", b"999999999999", b"99999999999999999999", b"-1", b"1e3"))
        lines = (b"POST /v1/heartbeats HTTP/1.1", b"Host: load", *given.headers, b"Content-Length: " + size, b"", b"")
        return "large", Expect.REFUSED, b"\r\n".join(lines)

    def _flood(self) -> Made:
        given = self._any_post()
        count, size = self._rng.choice(((3000, 10), (2, 40_000), (400, 100)))
        many = tuple(b"X-Flood-%d: %s" % (n, b"y" * size) for n in range(count))
        changed = replace(given, body=given.body + b" ", headers=(*given.headers, *many))
        return "flood", Expect.REFUSED, changed.wire()

    def _framing(self) -> Made:
        """Lengths that contradict one another, chunks that are none, a second request in the body of the first."""
        given = self._any_post()
        head = b"\r\n".join((b"POST /v1/heartbeats HTTP/1.1", b"Host: load", *given.headers))
        inner = replace(given, body=given.body + b" ").wire()
        ends = (
            b"\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
            b"\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner,
            b"\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
            b"\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\n[]\r\n0\r\n\r\n",
            b"\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n[]",
            b"\r\n folded: x\r\nContent-Length: 2\r\n\r\n[]",
        )
        return "framing", Expect.REFUSED, head + self._rng.choice(ends)


REQUESTS, QUICK_REQUESTS = 100_000, 3_000
NODES, LINES, SLOW = 200, 16, 40
PATIENCE = 60.0


@dataclass
class Findings:
    """What came back."""

    kinds: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    server_errors: int = 0
    wrongly_accepted: int = 0
    sound: list[int] = field(default_factory=lambda: [0, 0])
    slow: list[int] = field(default_factory=lambda: [0, 0])
    examples: list[str] = field(default_factory=list)

    def judge(self, made: Made, status: int) -> None:
        kind, expected, data = made
        self.kinds[kind] += 1
        self.statuses[status] += 1
        failed = status >= 500 or (expected is Expect.TAKEN and status != 200)
        wrong = expected is Expect.REFUSED and 200 <= status < 400
        self.server_errors += failed
        self.wrongly_accepted += wrong
        if expected is Expect.TAKEN:
            self.sound[0] += 1
            self.sound[1] += status == 200
        if (failed or wrong) and len(self.examples) < 10:
            self.examples.append(f"{kind}: {status} to {data[:300]!r}")


def run(
    quick: bool, progress: Callable[[str], None] = lambda line: None, count: int | None = None, seed: int = 1
) -> dict[str, Any]:
    """Send them; returns the keys of the module's docstring."""
    wanted = count or (QUICK_REQUESTS if quick else REQUESTS)
    keys = node_keys(NODES)
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(Path(folder), f"sqlite:///{folder}/shared.db", 1, keys)
        try:
            requests = HostileRequests(keys, AuthScope.of(fleet.url, CHAIN_ID, POOLS), seed)
            began = time.monotonic()
            found = asyncio.run(_through(requests, wanted, fleet.ports[0], progress))
            seconds = time.monotonic() - began
            resident = psutil.Process(fleet.processes[0].pid).memory_info().rss
        finally:
            fleet.stop()
    return {
        "requests": sum(found.kinds.values()),
        "server_errors": found.server_errors,
        "wrongly_accepted": found.wrongly_accepted,
        "sound": found.sound,
        "kinds": dict(sorted(found.kinds.items())),
        "statuses": {str(status): number for status, number in sorted(found.statuses.items())},
        "slow": found.slow,
        "examples": found.examples,
        "seconds": round(seconds),
        "rss_mb": round(resident / (1 << 20)),
    }


async def _through(requests: HostileRequests, wanted: int, port: int, progress: Callable[[str], None]) -> Findings:
    found = Findings()
    stream = islice(iter(requests), wanted)

    async def lane() -> None:
        for made in stream:
            status = await exchange(port, made[2])
            found.judge(made, status)
            if made[1] is Expect.TAKEN and status == 200:
                found.judge(("replay", Expect.REFUSED, made[2]), await exchange(port, made[2]))
            if sum(found.kinds.values()) % 5000 == 0:
                progress(f"{sum(found.kinds.values())} requests, {dict(found.statuses)}")

    await asyncio.gather(*(lane() for _ in range(LINES)), *(_slow(port, requests, n, found) for n in range(SLOW)))
    return found


async def exchange(port: int, data: bytes) -> int:
    """The status of the first answer on a connection of its own; 0 if it ended without one, 599 if nothing came."""
    try:
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(data)
                line = await reader.readline()
                while line.startswith(b"HTTP/1.1 100"):
                    await reader.readline()
                    line = await reader.readline()
                return int(line[9:12]) if line.startswith(b"HTTP/") else 0
            finally:
                writer.close()
    except TimeoutError:
        return 599
    except OSError:
        return 0


async def _slow(port: int, requests: HostileRequests, number: int, found: Findings) -> None:
    """A body (or, every other time, a head) that comes a byte a second; it must be ended, and never be believed."""
    whole = requests.sound().wire()
    quick = whole.index(b"\r\n\r\n") + 5 if number % 2 else 20
    found.slow[0] += 1
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(whole[:quick])
    try:
        async with asyncio.timeout(PATIENCE):
            ended = asyncio.create_task(reader.read())
            for byte in whole[quick:]:
                await asyncio.wait([ended], timeout=1.0)
                if ended.done():
                    break
                writer.write(bytes([byte]))
            answer = await ended
    except TimeoutError:
        return
    except OSError:
        answer = b""
    finally:
        writer.close()
    found.slow[1] += 1
    status = int(answer[9:12]) if answer.startswith(b"HTTP/") else 0
    found.judge(("slow", Expect.REFUSED, whole), status)
