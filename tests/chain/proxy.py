"""A JSON-RPC proxy that misbehaves on purpose, for tests of the chain client."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

Rule = Callable[[dict[str, Any]], dict[str, Any] | None]


def answering(method: str, answer: dict[str, Any]) -> Rule:
    """A rule that answers one method so, and nothing else."""
    return lambda request: answer if request["method"] == method else None


def serve(answer: Callable[[Any], tuple[int, bytes]]) -> ThreadingHTTPServer:
    """Answer JSON bodies on a free port, with a status and bytes; a status of 0 breaks the connection off."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status, data = answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            if status == 0:
                self.close_connection = True
                return
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    return server


class Proxy:
    """Forwards to `upstream`. `rule(request)` may answer instead (a dict with result or error), or return None.
    `lose` names methods whose requests are forwarded but whose answers are lost once each. `down` answers 503."""

    def __init__(self, upstream: str) -> None:
        self._http, self._upstream = httpx.Client(trust_env=False, timeout=100), upstream
        self.rule: Rule = lambda request: None
        self.lose: list[str] = []
        self.down = False
        self.calls: list[str] = []
        self.server = serve(lambda body: self.answer(body))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def answer(self, body: Any) -> tuple[int, bytes]:
        requests = body if isinstance(body, list) else [body]
        self.calls += [r["method"] for r in requests]
        if self.down:
            return 503, b"down"
        answers = []
        for request in requests:
            ruled = self.rule(request)
            if ruled is None:
                answers.append(self._http.post(self._upstream, json=request).json())
            else:
                answers.append({"jsonrpc": "2.0", "id": request["id"], **ruled})
        for request in requests:
            if request["method"] in self.lose:
                self.lose.remove(request["method"])
                return 0, b""
        return 200, json.dumps(answers if isinstance(body, list) else answers[0]).encode()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._http.close()
