"""Hostile requests, each with what must become of it. Made from a seed; every kind starts from a request that would do.

A request is bytes for one connection. `Expect.REFUSED`: an answer of 2xx or 3xx would be wrong; `Expect.ANY`: it may be
understood, but must not fail the service; `Expect.TAKEN`: a sound request, which must go on being answered.
"""

import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from benchmarks.load_pool import NodeKey
from benchmarks.made_up_chain import address
from protocol.http.signing import Realm
from protocol.signing import HALF_ORDER

ORDER = 2 * HALF_ORDER + 1
POSTS: dict[str, dict[str, Any]] = {
    "/v1/heartbeats": {"role": "worker", "phase": "generating"},
    "/v1/slots": {},
    "/v1/uploads": {"kind": "rollouts", "sha256": "ab" * 32, "size": 1000},
    "/v1/receipts": {"sha256": "cd" * 32, "size": 1000},
    "/v1/steps": {"step": 0},
}
PUBLIC = ("/", "/health", "/ready", "/docs", "/openapi.json", "/metrics", "/v1/pool", "/v1/nodes", "/v1/search?q=0x1")
ODD_PATHS = (
    b"/v1/objects/../../etc/passwd", b"/v1/objects/%2e%2e/%2e%2e", b"//v1/slots", b"/v1/slots/", b"/v1/slots;x", b"*",
    b"/v1/nodes/0x" + b"f" * 5000, b"/%00", b"/\xff\xfe", b"/v1/submissions/-1", b"/v1/submissions/" + b"9" * 400,
    b"/v1/nodes?limit=100000000&after=-5", b"/v1/policy-steps?after=nan", b"/v1/search?q=" + b"%f0%9f" * 50,
    b"http://elsewhere/v1/slots", b"/v1/submissions?status=%27%3b--", b"/v1/objects/rollouts/" + b"a" * 64 + b"%0a",
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
    """An endless stream of requests to the service of `realm`, whose pool `keys` have joined."""

    def __init__(self, keys: list[NodeKey], realm: Realm, seed: int) -> None:
        self._keys, self._realm, self._rng = keys, realm, random.Random(seed)
        self._stranger = NodeKey(-1)
        self._kinds: list[Callable[[], Made]] = [
            self._sound, self._signature, self._signature, self._headers, self._changed, self._elsewhere, self._clock,
            self._unknown, self._path, self._method, self._body, self._body, self._large, self._flood, self._framing,
        ]  # fmt: skip

    def __iter__(self) -> Iterator[Made]:
        while True:
            yield self._rng.choice(self._kinds)()

    def sound(self, key: NodeKey | None = None, realm: Realm | None = None, now: float | None = None) -> Signed:
        """A heartbeat that the service takes, unless one of the arguments is odd."""
        return self._signed("/v1/heartbeats", json.dumps(POSTS["/v1/heartbeats"]).encode(), key, realm, now)

    def _signed(
        self,
        path: str,
        body: bytes,
        key: NodeKey | None = None,
        realm: Realm | None = None,
        now: float | None = None,
    ) -> Signed:
        key, nonce = key or self._rng.choice(self._keys), self._rng.randbytes(32)
        lines = key.sign(realm or self._realm, path, body, time.time() if now is None else now, nonce)
        return Signed(path, body, tuple(lines.split(b"\r\n")[:-1]))

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
        own = self._realm
        realms = (
            replace(own, chain_id=1),
            replace(own, pools=address(77)),
            replace(own, audience=own.audience + "/"),
            replace(own, audience=own.audience.replace("http:", "https:")),
            replace(own, audience="http://127.0.0.1:1"),
        )
        return "elsewhere", Expect.REFUSED, self._any_post(realm=self._rng.choice(realms)).wire()

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
