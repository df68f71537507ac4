"""A pool on a real chain with policy steps of its own, whose service is a plain HTTP server."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from chain.suite import Suite
from cli.pool.config import load_terms
from protocol.accounts import LocalAccount
from protocol.api.endpoints import OBJECTS
from protocol.identity import PoolId
from runtime.process import ProcessConfig
from runtime.relay import RelayConfig
from storage.weights.manifest import Manifest, ManifestScope
from tests.cli.pool_files import TERMS
from tests.conftest import TOKEN, Deployed
from tests.storage.mirror import mirror, send
from tests.storage.weights.folders import model_folder, publish
from tests.validator import tiny


class PoolService:
    """A pool's service as far as relays and their clients need it: objects, how to take part, who announced."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.asked: Counter[str] = Counter()
        self.access: dict[str, object] = {}
        self.announced: list[dict[str, object]] = []

    def put(self, key: str, data: bytes) -> bool:
        return self.objects.setdefault(key, data) is data

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        if handler.command == "POST":
            body = handler.rfile.read(int(handler.headers["Content-Length"]))
            self.announced.append(json.loads(body))
            return send(handler, 200, b'{"next": 120.0}')
        path = handler.path
        self.asked[path] += 1
        if path == "/v1/pool":
            return send(handler, 200, json.dumps(self.access).encode())
        if path == "/v1/sources":
            return send(handler, 200, json.dumps({"sources": self.announced}).encode())
        data = self.objects.get(path.removeprefix(OBJECTS + "/"))
        return send(handler, 200, data) if data is not None else send(handler, 404)


@contextmanager
def pool_service() -> Iterator[tuple[PoolService, str]]:
    """A service, and its URL while the block runs."""
    made = PoolService()
    with mirror(lambda handler: made.answer(handler)) as url:
        yield made, url


class Published:
    """A pool on the chain whose service is at `url`, with policy steps."""

    def __init__(self, deployed: Deployed, service: PoolService, url: str, folder: Path) -> None:
        self.deployed, self.service, self.url, self.folder = deployed, service, url, folder
        self.owner: LocalAccount = deployed.rich()
        self.suite: Suite = deployed.suite(self.owner)
        (folder / "terms.toml").write_text(TERMS)
        terms = load_terms(folder / "terms.toml", tiny.CONFIG.digest, tiny.CONFIG.work.units)
        self.number = int(self.suite.pools.create_pool(terms, 500 * TOKEN).send())
        self.suite.court.announce_service(self.number, url).send()
        service.access = {
            "pool": self.number,
            "rpc": [deployed.chain.url],
            "config_hash": tiny.CONFIG.digest.hex(),
            "deployment": deployed.deployment.model_dump_json(),
        }
        self.pool = PoolId(deployed.chain.chain_id, self.suite.pools.address, self.number)
        self.steps: list[Manifest] = []

    def publish(self) -> Manifest:
        step, scope = len(self.steps), ManifestScope(self.pool, str(self.owner.address))
        folder = model_folder(self.folder / f"v{step}", seed=step)
        parent = self.steps[-1].digest if self.steps else None
        made = publish(folder, self.service, scope, step, parent, self.owner, shard_size=1000)
        self.suite.pools.publish_step(self.number, step, made.digest).send()
        self.steps.append(made)
        return made

    def config(self, home: Path, **more: object) -> ProcessConfig:
        home.mkdir(exist_ok=True)
        self.deployed.deployment.save(home / "deployment.json")
        return RelayConfig(
            home=home,
            cache=home / "cache",
            deployment=home / "deployment.json",
            rpc=(self.deployed.chain.url,),
            pool=self.number,
            orchestrator=self.url,
            allow_private_sources=True,
            poll_seconds=0.1,
            **more,
        )
