"""Links between simulated processes: HTTP by the roles' own clients, with delay, loss, duplication and partitions."""

import asyncio
import hashlib
import sqlite3
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any
from urllib.parse import urlsplit

import httpx

from chain.rpc import BadAnswer, FailoverProvider
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
        self._scheduler, self.random = scheduler, random
        self.weather = Weather()
        self.servers: dict[str, tuple[Process, Any, bool]] = {}
        self.partitions: set[tuple[str, str]] = set()
        self.onlookers: set[str] = set()
        """Processes whose exchanges take no time and never fail."""
        self.faults = 0

    def install(self) -> None:
        """Send what all HTTP clients of the roles send over these links."""
        lib: Any = transport._Transports
        lib.__init__ = lambda self, reach, connections: None
        lib.handle_request = lambda _, request: self.exchange(request)
        lib.close = lambda self: None
        FailoverProvider._post = json_rpc(self)  # type: ignore[method-assign,assignment]

    def serve(self, host: str, process: Process, handler: Any, waits: bool = False) -> None:
        """Let a process answer for a host, by a task for each exchange if its handler `waits` for anything."""
        self.servers[host] = process, handler, waits

    def exchange(self, request: httpx.Request) -> httpx.Response:
        """Carry an HTTP request to its server and the answer back, as a client's thread sees it."""
        body, timeouts = request.read(), request.extensions.get("timeout", {})
        request.extensions["client"] = self._client()

        def ask(handler: Handler) -> httpx.Response:
            # A copy: what a link delivers twice is handled twice.
            extensions = {"client": request.extensions["client"]}
            return handler(
                httpx.Request(request.method, request.url, headers=request.headers, content=body, extensions=extensions)
            )

        what = f"{request.method} {request.url.path}"
        try:
            answer = self.carry(request.url.host, what, ask, timeouts.get("connect"), timeouts.get("read"))
        except httpx.TransportError as error:
            error.request = request
            raise
        content = answer.content
        stream: httpx.SyncByteStream = httpx.ByteStream(content)
        if self.weather.cut and len(content) > 1 and self.random.random() < self.weather.cut:
            self.faults += 1
            stream = _Broken(content[: self.random.randrange(1, len(content))], request)
        return httpx.Response(answer.status_code, headers=answer.headers, stream=stream, request=request)

    def carry(
        self, host: str, what: str, ask: Callable[[Any], Any], connect: float | None = None, read: float | None = None
    ) -> Any:
        """Return what `ask` gets from the handler of a host, over links that delay, lose and repeat. Raises
        httpx.TransportError."""
        scheduler, weather, random = self._scheduler, self.weather, self.random
        client = self._client()
        if client in self.onlookers:
            return ask(self.servers[host][1])
        scheduler.touch()
        scheduler.sleep(random.expovariate(1 / weather.delay))
        server = self.servers.get(host)
        if self._cut_off(client, host):
            scheduler.sleep(transport._left(connect or _CONNECT_SECONDS))
            raise httpx.ConnectTimeout(f"{host} cannot be reached")
        if server is None or not server[0].alive:
            raise httpx.ConnectError(f"{host} refuses the connection")
        process, handler, waits = server
        scheduler.trace(client, host, what)
        if random.random() < weather.lose_request:
            self._lost(host, read)
        if random.random() < weather.duplicate:
            self.faults += 1
            if waits:
                self._started(process, what, lambda: ask(handler))
            else:
                ask(handler)
        if waits:
            exchange = self._started(process, what, lambda: ask(handler))
            if not exchange.wait(transport._left(read)):
                raise httpx.ReadTimeout(f"{host} is silent")
            answer = exchange.answer
        else:
            answer = ask(handler)
        if answer is None:
            raise httpx.RemoteProtocolError(f"{host} closed the connection")
        scheduler.sleep(random.expovariate(1 / weather.delay))
        if self._cut_off(client, host) or random.random() < weather.lose_answer:
            self._lost(host, read)
        scheduler.touch()
        return answer

    def _client(self) -> str:
        return self._scheduler.current.process.name if self._scheduler.current else "simulator"

    def _cut_off(self, one: str, other: str) -> bool:
        return (one, other) in self.partitions or (other, one) in self.partitions

    def _lost(self, host: str, read: float | None) -> None:
        self.faults += 1
        self._scheduler.sleep(transport._left(read))
        raise httpx.ReadTimeout(f"{host} is silent")

    def _started(self, process: Process, what: str, ask: Callable[[], Any]) -> "_Exchange":
        exchange = _Exchange(self._scheduler)

        def serve() -> None:
            try:
                exchange.finish(ask())
            except sqlite3.ProgrammingError:  # its process was killed meanwhile, which closed the database
                exchange.finish(None)

        process.on_death.append(exchange.broken)
        task = self._scheduler.spawn(process, what, serve)
        task.at_end.append(lambda: process.on_death.remove(exchange.broken))
        return exchange


class _Exchange:
    """The server's side of one request, which its client waits for."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler, self._client, self._done = scheduler, scheduler.current, False
        self.answer: Any = None

    def wait(self, seconds: float) -> bool:
        return self._done or self._scheduler.suspend(seconds, f"an answer {id(self)}")

    def finish(self, answer: Any) -> None:
        self.answer, self._done = answer, True
        if self._client is not None and self._client.why == f"an answer {id(self)}":
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


def _address(client: str) -> str:
    """Return the IP address of a process: services limit how often one may ask."""
    first, second, third = hashlib.sha256(client.encode()).digest()[:3]
    return f"10.{first}.{second}.{third}"


# --- Servers


def json_rpc(network: Network) -> Callable[[FailoverProvider, str, Any], Any]:
    """Return what takes the place of `FailoverProvider._post`: the same exchange, without HTTP and JSON as text."""

    def post(provider: FailoverProvider, url: str, body: Any) -> Any:
        several = isinstance(body, list)

        def ask(chain: Chain) -> Any:
            return [*map(chain.answer, body)] if several else chain.answer(body)

        what = body[0]["method"] if several else body["method"]
        try:
            return network.carry(urlsplit(url).hostname or "", what, ask, 3.0, 15.0)
        except httpx.TransportError as error:
            raise BadAnswer(f"{type(error).__name__}: {error}") from None

    return post


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
