"""One replica of the load benchmark: `python -m benchmarks.load_replica '{"port": …}'`.

Everything is the service's own, but for the chain (`benchmarks.load_pool`) and the bucket, which is a folder. It prints
`ready` for each of its processes, and writes into the file `samples` where the threads of the first spent their time,
when it ends.
"""

import asyncio
import contextlib
import json
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

from fastapi import FastAPI

from benchmarks.load_pool import CHAIN_ID, CONFIG, POOL, POOLS, TimedPool
from chain.indexer.projection import Projection
from orchestrator.app import create_app
from orchestrator.db import Database
from orchestrator.guard import RequestGuard
from orchestrator.housekeeping import Housekeeper
from orchestrator.interpreter import settle
from orchestrator.leader import Leader
from orchestrator.nonces import NonceStore
from orchestrator.service import Service, ServiceParts
from orchestrator.uploads import Uploads
from orchestrator.watch import Watch
from protocol.accounts import Account
from protocol.http.signing import Realm
from protocol.identity import PoolId
from protocol.receipts import ReceiptSigner
from runtime.http_server import HttpServer, bound, held, server_options
from runtime.prefork import Prefork
from runtime.process import serve
from storage.keys import MissingObjectError
from storage.s3 import AccessKey, Presigner, S3Settings

SAMPLE_SECONDS = 0.05


class Folder(Presigner):
    """A bucket whose objects' sizes are those of files."""

    def __init__(self, folder: Path) -> None:
        settings = S3Settings(endpoint="http://127.0.0.1:9", bucket="pool", credentials=Path("unused"))
        super().__init__(settings, AccessKey(access_key="key", secret_key="secret"))
        self._folder = folder

    def get(self, key: str, limit: int) -> bytes:
        if self.size(key) is None:
            raise MissingObjectError(f"{key} is not in the bucket")
        data = self._at(key).read_bytes()
        assert len(data) <= limit
        return data

    def size(self, key: str) -> int | None:
        try:
            return self._at(key).stat().st_size
        except FileNotFoundError:
            return None

    def _at(self, key: str) -> Path:
        return self._folder / key.replace("/", "_")


class Sampler(threading.Thread):
    """Notes twenty times a second what each other thread is doing."""

    def __init__(self) -> None:
        super().__init__(name="sampler", daemon=True)
        self.counts: dict[str, Counter[str]] = {}

    def run(self) -> None:
        while True:
            time.sleep(SAMPLE_SECONDS)
            names = {thread.ident: thread.name for thread in threading.enumerate()}
            for ident, frame in sys._current_frames().items():
                if ident == self.ident:
                    continue
                stack, at = set(), frame
                while at is not None:
                    stack.add(_place(at.f_code))
                    at = at.f_back  # type: ignore[assignment]
                kind = names.get(ident, "?").split("_")[0].split(" ")[0]
                self.counts.setdefault(kind, Counter()).update(stack)
                self.counts[kind].update([f"in {_place(frame.f_code)}", "all"])


@cache
def _place(code: CodeType) -> str:
    return f"{Path(code.co_filename).name}:{code.co_name}"


def build(options: dict[str, Any], number: int, sampler: Sampler) -> FastAPI:
    addresses = json.loads(Path(options["addresses"]).read_text())
    watch = Watch(Projection(TimedPool(addresses, options["start"])), POOL, confirmations=0)
    db = Database(options["database"])
    receipts = ReceiptSigner(Account.from_key(b"\7" * 32), PoolId(CHAIN_ID, POOLS, POOL))
    store = Folder(Path(options["bucket"]))
    uploads = Uploads(db, watch, store, receipts)
    service = Service(ServiceParts(db, watch, store, CONFIG, uploads, batched=True, lease_limit=3600.0))
    nonces, leader = NonceStore(db), Leader(db)
    keeper = Housekeeper(service.heartbeats, service.leases, nonces, leader, 1.0)
    guard = RequestGuard(Realm.of(options["url"], CHAIN_ID, POOLS), nonces, watch.knows)

    async def follow() -> None:
        while True:
            await asyncio.to_thread(watch.refresh)
            await asyncio.sleep(1.0)

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        settle()
        keeper.start()
        following = asyncio.create_task(follow())
        print("ready", flush=True)
        yield
        following.cancel()
        keeper.stop()
        # Here, because uvicorn ends the process by the signal that it was sent.
        if number == 0:
            Path(options["samples"]).write_text(  # noqa: ASYNC240
                json.dumps({kind: dict(one) for kind, one in sampler.counts.items()})
            )

    return create_app(service, guard, rate=1e6, burst=1e6, lifespan=lifespan)


class Replica:
    """One process of a replica."""

    def __init__(self, options: dict[str, Any], number: int, listener: socket.socket | None = None) -> None:
        sampler = Sampler()
        sampler.start()
        app = build(options, number, sampler)
        self._listener = listener or bound("127.0.0.1", options["port"], shared=True)
        self._server = HttpServer(server_options(app, 16_384))

    def run(self) -> int:
        self._server.run(sockets=[self._listener])
        return 0

    def stop(self) -> None:
        self._server.should_exit = True


def main(options: dict[str, Any]) -> None:
    """Its processes share the port as those of `orchestrator.main` do."""
    port, count = options["port"], options["processes"]
    if count == 1:
        serve(Replica(options, 0, bound("127.0.0.1", port)))
    serve(Prefork(count, lambda number: Replica(options, number), held("127.0.0.1", port)))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
