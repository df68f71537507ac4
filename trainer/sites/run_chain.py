"""A keeper's or site's way to its run on chain: a thread of its own that looks and sends, so that no outer step waits
for the chain, and says how it stands."""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from chain.client import ChainClient
from chain.contracts.site_runs import RunView, SiteRuns
from chain.deployment import Deployment
from protocol.accounts import LocalAccount
from protocol.errors import ConfigError, MusterError, printable, unwritten
from protocol.sites.run import SitesRun
from trainer.sites.chain_config import RunChainConfig, RunOnChain

log = logging.getLogger("muster.sites")
SEND_SECONDS = 300.0
"""For which a transaction is waited for and outbid; given up sooner, it would be sent twice while gas is dear."""
_PATIENCE, _MOST_PAUSE = 5.0, 60.0


class RunChain:
    """`connect`: its contract, sending as this process's key; it is asked once, by whichever thread comes first."""

    def __init__(self, config: RunOnChain, run: SitesRun, connect: Callable[[], SiteRuns]) -> None:
        self.config, self.run, self._connect = config, run, connect
        self._runs: SiteRuns | None = None
        self._lock = threading.Lock()

    def runs(self) -> SiteRuns:
        """The contract. Raises UnreachableError where the chain is gone, ConfigError for another chain."""
        with self._lock:
            if self._runs is None:
                self._runs = self._connect()
            return self._runs

    def view(self) -> RunView:
        """The run on chain. Raises ConfigError if it is another one, UnreachableError."""
        view = self.runs().run_of(self.config.run)
        check_run(view, self.config.run, self.run)
        return view


class ChainWork(ABC):
    """What a thread does every few seconds: `look`. While that fails it is tried again after a pause that doubles, up
    to a minute, and `problem` says why."""

    def __init__(self, chain: RunChain) -> None:
        self.chain, self.problem = chain, ""
        self._soon, self._stopping = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="run-on-chain", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """End it after what it is doing, waiting for so long at most."""
        self._stopping.set()
        self._soon.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    @abstractmethod
    def look(self) -> None:
        """Once. Raises MusterError."""

    @abstractmethod
    def status(self) -> dict[str, Any]:
        """What people may be shown."""

    def attempt(self) -> bool:
        """Look once, whatever comes of it; whether it succeeded."""
        try:
            self.look()
        except (MusterError, OSError) as error:
            words = printable(unwritten(error) if isinstance(error, OSError) else str(error), 300)
            if words != self.problem:
                log.warning("run %d on chain: %s", self.chain.config.run, words)
            self.problem = words
            return False
        self.problem = ""
        return True

    def _work(self) -> None:
        pause = every = self.chain.config.refresh_seconds
        while not self._stopping.is_set():
            self._soon.clear()
            pause = every if self.attempt() else min(max(2 * pause, every), max(every, _MOST_PAUSE))
            self._soon.wait(pause)


def chain_of(config: RunChainConfig, run: SitesRun, account: LocalAccount | None) -> RunChain:
    """Reads the deployment file and asks nobody yet; `account`: who sends, None: nobody. Raises ConfigError for a run
    whose document is of another chain: what is signed in it could prove nothing there."""
    deployment = Deployment.load(config.deployment)
    check_place(run, deployment)

    def connect() -> SiteRuns:
        client = ChainClient(config.rpc, deployment.chain_id, account, patience=_PATIENCE, timeout=_PATIENCE)
        deployment.check_genesis(client)
        return SiteRuns(client, deployment)

    return RunChain(config, run, connect)


def check_place(run: SitesRun, deployment: Deployment) -> None:
    """Raise ConfigError unless the run's document names the deployment's chain and `Pools`, in whose domain all of it
    is signed."""
    wanted = deployment.chain_id, deployment.address("Pools")
    if (run.chain_id, run.pools) != wanted:
        raise ConfigError(
            f"the document of {run.name} names chain {run.chain_id} and pools {run.pools}, the deployment is on chain "
            f"{wanted[0]} with {wanted[1]}",
            "name these as `chain_id` and `pools` of the run, and as `pool` the one whose seats judge disputes",
        )


def check_run(view: RunView, number: int, run: SitesRun) -> None:
    """Raise ConfigError unless the chain's run of that number is the document's."""
    if not view.exists:
        raise ConfigError(f"there is no run {number} on chain", "muster site open, or check the number")
    found, wanted = (view.document.hex(), view.keeper, view.pool), (run.digest, run.keeper, run.pool)
    if found != wanted:
        raise ConfigError(
            f"run {number} on chain has the document {found[0][:16]}…, keeper {found[1]} and pool {found[2]}; "
            f"{run.name} has {wanted[0][:16]}…, {wanted[1]} and {wanted[2]}",
            "check the number, and the document",
        )


def check_start(view: RunView, first: bytes) -> None:
    """Raise ConfigError where the first state, of digest `first`, is not what the run begins from: by it every step
    would look wrong, and where the chain's is nobody's, no step could ever be judged."""
    if view.start != first:
        raise ConfigError(
            f"the run on chain begins from state {view.start.hex()[:16]}…, this model is {first.hex()[:16]}…",
            "name the run's own base model; if it is the right one, take no part in this run",
        )


def check_audits(run: SitesRun) -> None:
    """Raise ConfigError for a run whose keeper lets parts pass that its stake answers for."""
    if run.reducing and run.audited < len(run.sites):
        raise ConfigError(
            f"{run.name} has its keeper audit {run.audited} parts of {len(run.sites)}, and its stake answers for all",
            f"let `audited` in the run's document be {len(run.sites)}, or `exchange` be all",
        )
