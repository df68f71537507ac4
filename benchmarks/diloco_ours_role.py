"""A keeper or a site of `python -m benchmarks diloco_peer` as a process: `python -m benchmarks.diloco_ours_role FILE`.

Everything is as in `muster site`, but for the inner steps, which cost next to nothing; both print what of the processor
they had used and asked the bucket by each outer step, and a site when it went on from new weights.
"""

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from benchmarks.diloco_peer_role import _parts
from benchmarks.site_process import SiteProcessConfig
from protocol.accounts import Account
from protocol.documents import load_document
from protocol.lifetime import die_with_parent
from protocol.sites.layout import F32, Tensors
from protocol.sites.outer import OuterState
from protocol.sites.run import SitesRun
from runtime.logs import start_logging
from runtime.process import make_home
from storage.bucket import Bucket
from storage.settings import S3Settings
from trainer.sites.exchange import SiteExchange
from trainer.sites.home import hold_home
from trainer.sites.inner import SAVED, Saving, Share
from trainer.sites.keeper import SitesKeeper
from trainer.sites.main import KeeperDaemon, SiteDaemon
from trainer.sites.site import Site

T = TypeVar("T")


class MeasuredConfig(SiteProcessConfig):
    """`parameters`: of the model."""

    parameters: int


class CountedBucket(Bucket):
    """Which counts its requests by what they do."""

    def __init__(self, settings: S3Settings) -> None:
        super().__init__(settings)
        self._asked, self._lock = Counter[str](), threading.Lock()

    def asked(self) -> dict[str, int]:
        with self._lock:
            return dict(self._asked)

    def _call(self, what: str, request: Callable[[], T], expected: Collection[int] = ()) -> T | None:
        answer = super()._call(what, request, expected)
        with self._lock:
            self._asked[_kind(what) + (", in vain" if answer is None else "")] += 1
        return answer


def _kind(what: str) -> str:
    """Of a request, by its words: what it does with what, such as `read log`."""
    does, _, key = what.rpartition(" ")
    return f"{does} {next((one for one in ('log', 'notes') if f'/{one}/' in key), 'file')}"


class PushedWeights:
    """Weights of a model's size that each inner step moves by the same normal numbers, in part those of all sites, in
    part the site's own. `loaded`: when it went on from new weights (seconds); by then, `cpu`: what its process had used
    of the processor (seconds), `asked`: what it had asked the bucket."""

    def __init__(self, parameters: int, own: int, bucket: CountedBucket) -> None:
        common, mine = np.random.default_rng(0), np.random.default_rng(1 + own)
        self._weights: dict[str, F32] = {}
        self._push: dict[str, F32] = {}
        for number, size in enumerate(_parts(parameters)):
            name = f"part-{number:02d}"
            self._weights[name] = common.standard_normal(size, np.float32)
            pushed = common.standard_normal(size, np.float32) + mine.standard_normal(size, np.float32)
            self._push[name] = (np.float32(1e-4) * pushed).astype(np.float32)
        self.loaded: list[float] = []
        self.cpu: list[float] = []
        self.asked: list[dict[str, int]] = []
        self._bucket = bucket

    def weights(self) -> Tensors:
        return {name: one.copy() for name, one in self._weights.items()}

    def load(self, weights: Tensors) -> None:
        self._weights = {name: np.array(one) for name, one in weights.items()}
        self.loaded.append(time.monotonic())
        self.cpu.append(time.process_time())
        self.asked.append(self._bucket.asked())

    def train(self, share: Share, number: int) -> int:
        for name, one in self._push.items():
            self._weights[name] -= one
        return 1

    def figures(self) -> Mapping[str, float]:
        return {}

    def save(self, folder: Path) -> Saving:
        folder.mkdir()
        kept: dict[str, Any] = dict(self._weights)
        np.savez(folder / "work.npz", **kept)
        return SAVED

    def restore(self, folder: Path) -> None:
        with np.load(folder / "work.npz") as kept:
            self._weights = {name: kept[name] for name in self._weights}


def main() -> None:
    start_logging()
    die_with_parent()
    config = load_document(Path(sys.argv[1]), MeasuredConfig)
    make_home(config.home)
    held = hold_home(config.home)
    run, account = load_document(config.run, SitesRun), Account.from_key(config.secret)
    bucket = CountedBucket(config.s3)
    exchange, inner = SiteExchange(bucket, run), PushedWeights(config.parameters, int(config.secret[:2], 16), bucket)
    if config.role == "keeper":
        used, asked = [time.process_time()], [bucket.asked()]

        def on_step(*_: object) -> None:
            used.append(time.process_time())
            asked.append(bucket.asked())

        keeping = SitesKeeper(exchange, account, OuterState.start(inner.weights()), config.home, on_step)
        KeeperDaemon(keeping, config, held).run()
        print(json.dumps({"cpu": used, "asked": asked}), flush=True)
        return
    site = Site(exchange, account, inner, config.home)
    SiteDaemon(site, config, held).run()
    said = {"loaded": inner.loaded, "cpu": inner.cpu, "asked": inner.asked}
    print(json.dumps(said | {"step": site.state.step, "digest": site.state.digest.hex()}), flush=True)


if __name__ == "__main__":
    main()
