"""`run_watch`: the process that watches a run on chain for anybody who may read its bucket, and takes no part in it."""

import logging
import threading
from pathlib import Path
from typing import Any, NoReturn

from protocol.accounts import LocalAccount
from protocol.documents import load_document
from protocol.errors import ConfigError
from protocol.lifetime import die_with_parent
from protocol.sites.run import SitesRun
from runtime.logs import start_logging
from runtime.process import make_home, serve
from storage.bucket import Bucket
from trainer.sites.config import RunMemberConfig
from trainer.sites.contradiction_watch import ContradictionWatch
from trainer.sites.exchange import SiteExchange
from trainer.sites.home import claim_home, hold_home
from trainer.sites.run_chain import chain_of
from trainer.sites.status_file import StatusFile

log = logging.getLogger("muster.sites")
_SHOW_SECONDS, _LAST_SECONDS = 1.0, 5.0


def run_watch(
    config: RunMemberConfig, account: LocalAccount | None, home: Path | None = None, parent: int | None = None
) -> NoReturn:
    """Watch until SIGINT or SIGTERM, showing contradictions as `account` (None: nobody's are shown). `home`: where
    proofs are kept; `parent`: the process that this one must not outlive. Raises ConfigError."""
    start_logging()
    if parent is not None:
        die_with_parent(parent)
    if config.chain is None:
        raise ConfigError("this run is on no chain that the configuration names", "name it as `chain`")
    run, place = load_document(config.run, SitesRun), home or config.home / "watch"
    make_home(place)
    held = hold_home(place)
    claim_home(place, run)
    own = "" if account is None else str(account.address)
    chain, exchange = chain_of(config.chain, run, account), SiteExchange(Bucket(config.s3), run)
    watch = ContradictionWatch(chain, exchange, own, place, may_accuse=account is not None)
    with held:
        serve(WatchDaemon(watch, run, place))


class WatchDaemon:
    """Of one run; `home`: where its status is shown."""

    def __init__(self, watch: ContradictionWatch, run: SitesRun, home: Path) -> None:
        self._watch, self._run, self._stopping = watch, run, threading.Event()
        self._status = StatusFile(home, self.status)

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> int:
        log.info("watching the run %s", self._run.name)
        self._watch.start()
        while not self._stopping.wait(_SHOW_SECONDS):
            self._status()
        self._watch.stop(_LAST_SECONDS)
        self._status.write()
        return 0

    def status(self) -> dict[str, Any]:
        """What people may be shown of it."""
        return {"watches": self._run.name, "contradictions": self._watch.status()}
