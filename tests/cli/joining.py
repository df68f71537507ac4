"""What somebody who joins a pool finds: its service, as far as `up` and profiles ask it."""

from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler

from protocol.api.run import PoolAccess
from protocol.config import EnvironmentConfig, ModelConfig, PoolConfig
from tests.storage.mirror import send

CONFIG = PoolConfig(
    name="up", model=ModelConfig(source="m"), environments=(EnvironmentConfig(name="reasoning_gym/chain_sum"),)
)


@dataclass
class StubService:
    """What `up` asks of a pool's service, whose configuration is `config`."""

    access: PoolAccess | None = None
    config: PoolConfig = CONFIG
    url: str = ""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = self.access.model_dump_json().encode() if self.access else b""
        if handler.path.startswith("/v1/objects/configs/"):
            body = self.config.canonical()
        send(handler, 200, body, Content_Type="application/json")
