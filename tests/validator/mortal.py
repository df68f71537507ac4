"""A validator's whole process that is killed at a moment of the test's choice.

A moment is before or after any step by which the process leaves a trace outside its memory or takes one in: a file that
appears or goes, events that are stored, a transaction that is handed over or was mined, a file that was fetched or
judged, an object that is put into a bucket. Everything but the model is real.
"""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eth_utils.crypto import keccak

from chain.indexer.store import EventStore
from chain.transactions import Sender
from protocol.accounts import Account
from protocol.api.work import HeartbeatRequest, HeartbeatResponse
from protocol.verdict import Verdict
from runtime.pool_client import PoolClient
from runtime.process import PoolSource
from storage.keys import object_key
from storage.s3 import Bucket, S3Settings
from tests.validator import world
from tests.validator.scripted import ModelFreeJudge, ScriptedJudge
from validator.config import ValidatorConfig
from validator.daemon import Validator
from validator.judging.pipeline import LoadedEngine
from validator.judging.sources import Sources
from validator.pools import PoolCollaborators, ValidatorCollaborators


@dataclass(frozen=True)
class Life:
    """`config` is the process's, `keys` its voting keys, `service` the pool's bucket. It ends at its `moment`-th moment
    (from 1 on; 0: when it is killed from outside), of all or of those with one of these `names`. Where that was is
    written to `grave`, what it logs to `grave` with `.log`."""

    config: dict[str, Any]
    keys: tuple[str, ...]
    service: dict[str, Any]
    grave: Path
    moment: int = 0
    names: frozenset[str] = frozenset()


class Death:
    """Counts moments, and kills the process at the one that was chosen."""

    def __init__(self, life: Life) -> None:
        self._life, self._lock, self._count = life, threading.Lock(), 0
        self.calling = threading.local()

    def at(self, name: str) -> None:
        if self._life.names and name not in self._life.names:
            return
        with self._lock:
            self._count += 1
            if self._count == self._life.moment:
                self._life.grave.write_text(name)
                os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(60)

    def around(self, owner: Any, method: str, name: Callable[..., str], only_after: bool = False) -> None:
        """Make two moments of every call of `owner.method`, or one; an empty name is none."""
        real = getattr(owner, method)

        def call(*args: Any, **options: Any) -> Any:
            what = name(*args)
            if what and not only_after:
                self.at(f"before {what}")
            result = real(*args, **options)
            if what:
                self.at(f"after {what}")
            return result

        setattr(owner, method, call)

    def everywhere(self) -> None:
        launch = Sender._launch

        def launched(sender: Sender, call: Any, *rest: Any) -> Any:
            self.calling.label = call.label
            return launch(sender, call, *rest)

        Sender._launch = launched  # type: ignore[method-assign, assignment]
        self.around(Sender, "_broadcast", lambda *_: f"sending {self.calling.label}")
        self.around(Sender, "_await", lambda _, pending, *__: f"mined {pending.call.label}", only_after=True)
        self.around(os, "replace", lambda _, to: f"keeping {_kind(to)}")
        self.around(os, "rename", lambda _, to: f"moving {_kind(to)}")
        self.around(os, "unlink", lambda path: f"dropping {_kind(path)}")
        self.around(EventStore, "append", lambda _, logs, __: "storing events" if logs else "")
        self.around(Sources, "fetch", lambda *_: "fetching")
        self.around(Bucket, "put", lambda _, key, __: f"putting {key.partition('/')[0]}")


def _kind(path: object) -> str:
    """ballots, documents, published, verdicts, files; or the name of a file that stands alone."""
    at = Path(str(path))
    return at.parent.name if at.parent.name in ("ballots", "documents", "published", "verdicts", "files") else at.name


class DocumentTaker:
    """The pool's service, as far as it takes documents: into its bucket."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def upload_verdict(self, data: bytes) -> None:
        self._bucket.put(object_key("verdicts", keccak(data)), data)

    def heartbeat(self, _: HeartbeatRequest) -> HeartbeatResponse:
        return HeartbeatResponse(next=60.0, step=None, lease_expires=None)

    def close(self) -> None:
        """Nothing to close."""


def live(life: Life) -> None:
    """The process, from its start to its end."""
    handler = logging.FileHandler(life.grave.with_suffix(".log"))
    logging.basicConfig(level=logging.DEBUG, handlers=[handler], force=True)
    for noisy in ("httpcore", "httpx", "botocore", "boto3", "urllib3", "web3", "s3transfer"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    death = Death(life)
    death.everywhere()
    config = ValidatorConfig.model_validate(life.config)
    shared = ValidatorCollaborators.connect(config, [Account.from_key(key) for key in life.keys])
    bucket = Bucket(S3Settings.model_validate(life.service))

    def judge(*given: Any) -> Verdict:
        death.at("before judging")
        return ScriptedJudge()(*given)

    def open_pool(source: PoolSource, announced: bool) -> PoolCollaborators:
        client = PoolClient(config.model_copy(update=source.model_dump()), None, shared.chain, announced)
        engine, sources = LoadedEngine(None), Sources(client.objects)  # type: ignore[arg-type]
        kept = shared.verdicts, shared.retained
        judges = ModelFreeJudge(world.CONFIG, engine, sources, lambda _: Path(), *kept, judge)
        service: Any = DocumentTaker(bucket)
        return PoolCollaborators(client, service, judges, world.CONFIG, 120.0, 120.0)

    validator = Validator(config, shared, open_pool)
    death.at("start")
    os._exit(validator.run())
