"""Links between simulated processes: HTTP by the roles' own clients, with delay, loss, duplication and partitions."""

import asyncio
import hashlib
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any

import httpx

from protocol.http import transport
from simulation.chain import Chain
from simulation.scheduler import Process, Scheduler

Handler = Callable[[httpx.Request], httpx.Response]
_CONNECT_SECONDS = 3.0


@dataclass
class Weather:
    """How bad links are now: seconds of delay, and probabilities of each exchange."""

    delay: float = 0.02
    lose_request: float = 0.0
    lose_answer: float = 0.0
    duplicate: float = 0.0
    cut: float = 0.0


class Network:
    """Servers by host name, and who cannot reach whom."""

    def __init__(self, scheduler: Scheduler, random: Random) -> None:
        self._scheduler, self._random = scheduler, random
        self.weather = Weather()
        self.servers: dict[str, tuple[Process, Handler]] = {}
        self.partitions: set[tuple[str, str]] = set()
        self.exchanges = self.faults = 0

    def install(self) -> None:
        """Send what all HTTP clients of the roles send over these links."""
        lib: Any = transport._Transports
        lib.__init__ = lambda self, reach, connections: None
        lib.handle_request = lambda _, request: self.exchange(request)
        lib.close = lambda self: None

    def serve(self, host: str, process: Process, handler: Handler) -> None:
        self.servers[host] = process, handler

    def cut_off(self, one: str, other: str) -> bool:
        return (one, other) in self.partitions or (other, one) in self.partitions

    def exchange(self, request: httpx.Request) -> httpx.Response:
        """Carry a request to its server and the answer back, as a client's thread sees it."""
        scheduler, weather, random = self._scheduler, self.weather, self._random
        client = scheduler.current.process.name if scheduler.current else "simulator"
        host, timeouts = request.url.host, request.extensions.get("timeout", {})
        self.exchanges += 1
        body = request.read()
        scheduler.sleep(random.expovariate(1 / weather.delay))
        server = self.servers.get(host)
        if self.cut_off(client, host):
            self._wait(timeouts.get("connect") or _CONNECT_SECONDS)
            raise httpx.ConnectTimeout(f"{host} cannot be reached", request=request)
        if server is None or not server[0].alive:
            raise httpx.ConnectError(f"{host} refuses the connection", request=request)
        process, handler = server
        request.extensions["client"] = client
        scheduler.trace(client, request.method, host, request.url.path, len(body))
        if random.random() < weather.lose_request:
            self.faults += 1
            return self._silence(request, timeouts)
        if random.random() < weather.duplicate:
            self.faults += 1
            self._started(process, handler, _copy(request, body))
        waiting = self._started(process, handler, request)
        left = transport._left(timeouts.get("read"))
        if not waiting.wait(left):
            raise httpx.ReadTimeout(f"{host} is silent", request=request)
        if waiting.answer is None:
            raise httpx.RemoteProtocolError(f"{host} closed the connection", request=request)
        scheduler.sleep(random.expovariate(1 / weather.delay))
        if self.cut_off(client, host) or random.random() < weather.lose_answer:
            self.faults += 1
            return self._silence(request, timeouts)
        answer, content = waiting.answer, waiting.answer.content
        stream: httpx.SyncByteStream = httpx.ByteStream(content)
        if weather.cut and len(content) > 1 and random.random() < weather.cut:
            self.faults += 1
            stream = _Broken(content[: random.randrange(1, len(content))], request)
        return httpx.Response(answer.status_code, headers=answer.headers, stream=stream, request=request)

    def _silence(self, request: httpx.Request, timeouts: dict[str, float]) -> httpx.Response:
        self._wait(timeouts.get("read"))
        raise httpx.ReadTimeout(f"{request.url.host} is silent", request=request)

    def _wait(self, timeout: float | None) -> None:
        self._scheduler.sleep(transport._left(timeout))

    def _started(self, process: Process, handler: Handler, request: httpx.Request) -> "_Exchange":
        exchange = _Exchange(self._scheduler)

        def serve() -> None:
            try:
                exchange.finish(handler(request))
            except OSError:  # of a process that is being killed
                exchange.finish(None)

        process.on_death.append(exchange.broken)
        task = self._scheduler.spawn(process, f"{request.method} {request.url.path}", serve)
        task.at_end.append(lambda: process.on_death.remove(exchange.broken))
        return exchange


class _Exchange:
    """The server's side of one request, which its client waits for."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler, self._client, self._done = scheduler, scheduler.current, False
        self.answer: httpx.Response | None = None

    def wait(self, seconds: float) -> bool:
        return self._done or self._scheduler.suspend(seconds, "an answer")

    def finish(self, answer: httpx.Response | None) -> None:
        self.answer, self._done = answer, True
        if self._client is not None and self._client.why == "an answer":
            self._scheduler.wake(self._client)

    def broken(self) -> None:
        self.finish(None)


class _Broken(httpx.SyncByteStream):
    """An answer that ends too early."""

    def __init__(self, part: bytes, request: httpx.Request) -> None:
        self._part, self._request = part, request

    def __iter__(self) -> Any:
        yield self._part
        raise httpx.ReadError("the connection was reset", request=self._request)


def _copy(request: httpx.Request, body: bytes) -> httpx.Request:
    extensions = {"client": request.extensions["client"]}
    return httpx.Request(request.method, request.url, headers=request.headers, content=body, extensions=extensions)


def _address(client: str) -> str:
    """Return the IP address of a process: services limit how often one may ask."""
    first, second, third = hashlib.sha256(client.encode()).digest()[:3]
    return f"10.{first}.{second}.{third}"


# --- Servers


def rpc(chain: Chain) -> Handler:
    """Return the handler of a JSON-RPC endpoint."""

    def handle(request: httpx.Request) -> httpx.Response:
        asked = json.loads(request.content)
        answer = [*map(chain.answer, asked)] if isinstance(asked, list) else chain.answer(asked)
        return httpx.Response(200, content=json.dumps(answer).encode())

    return handle


class _Loop(asyncio.BaseEventLoop):
    """An event loop of one request, whose pauses are the scheduler's."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self._scheduler = scheduler
        self._selector: Any = self

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None or timeout > 0:
            self._scheduler.suspend(timeout, "an event loop")
        return []

    def _process_events(self, event_list: Any) -> None:
        """There are none: nothing here waits for a socket."""

    def _write_to_self(self) -> None:
        """Nobody else runs while this loop does not wait."""


def application(app: Any, scheduler: Scheduler, host: str) -> Handler:
    """Return the handler of an ASGI application; each request has a thread and an event loop of its own."""

    def handle(request: httpx.Request) -> httpx.Response:
        body, sent = [request.content], list[dict[str, Any]]()
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": "http",
            "path": request.url.path,
            "raw_path": request.url.raw_path.partition(b"?")[0],
            "query_string": request.url.query,
            "root_path": "",
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "client": (_address(request.extensions["client"]), 1),
            "server": (host, 80),
        }

        async def receive() -> dict[str, Any]:
            if body:
                return {"type": "http.request", "body": body.pop(), "more_body": False}
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        answered: Coroutine[Any, Any, None] = app(scope, receive, send)
        loop = _Loop(scheduler)
        try:
            loop.run_until_complete(answered)
        finally:
            loop.close()
        start = sent[0]
        content = b"".join(message.get("body", b"") for message in sent[1:])
        headers = [(name.decode(), value.decode()) for name, value in start["headers"]]
        return httpx.Response(start["status"], headers=headers, content=content)

    return handle
