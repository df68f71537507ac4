"""What somebody who joins a pool finds: its service, as far as `up` and profiles ask it."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from protocol.api.run import PoolAccess
from protocol.config import EnvironmentConfig, ModelConfig, PoolConfig

CONFIG = PoolConfig(
    name="up", model=ModelConfig(source="m"), environments=(EnvironmentConfig(name="reasoning_gym/chain_sum"),)
)


class StubService:
    """What `up` asks of a pool's service, whose configuration is `config`."""

    def __init__(self) -> None:
        self.access: PoolAccess | None = None
        self.config = CONFIG
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                known = self.path.startswith("/v1/objects/configs/")
                body = (
                    stub.config.canonical() if known else stub.access.model_dump_json().encode() if stub.access else b""
                )
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"
