"""Whoever watches a run on chain: it reads what sites and keeper sign, compares each record with the log, writes down
what cannot both be, and shows it to the contract where its key may."""

import logging
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chain.contracts.site_runs import RunView
from protocol.errors import MusterError
from trainer.sites.accusing import Accuser
from trainer.sites.exchange import SiteExchange
from trainer.sites.proof_folder import ProofFolder
from trainer.sites.run_chain import ChainWork, RunChain
from trainer.sites.statement_reader import FoundProof, StatementReader

log = logging.getLogger("muster.sites")
FOLDER = "contradictions"
_STEPS_BACK, _STEPS_AT_ONCE = 64, 64
_SPREAD = 6
"""Looks over which those who found the same show it: few pay for what one of them has shown."""


class ContradictionWatch(ChainWork):
    """`own`: the address of this process's key, empty if it has none; what it signed itself it does not show. Proofs
    are kept in a folder of `home`, and shown where it `may_accuse` (None: as the configuration says)."""

    def __init__(
        self, chain: RunChain, exchange: SiteExchange, own: str, home: Path, may_accuse: bool | None = None
    ) -> None:
        super().__init__(chain)
        self._proofs = ProofFolder(home / FOLDER)
        self._folder = home / FOLDER
        self._reader = StatementReader(exchange, own)
        accuses = chain.config.accuse if may_accuse is None else may_accuse
        self._accuser = Accuser(chain, self._proofs) if accuses else None
        self._with_records = chain.run.keeper != own
        self._compared: int | None = None
        self._unkept: list[FoundProof] = []
        self._stands: dict[str, str] = {}

    def look(self) -> None:
        """Once. What is known is shown also while the bucket is gone. Raises MusterError."""
        missing: MusterError | None = None
        view = self.chain.view()
        try:
            self._keep()
            for proof in self._reader.read():
                self._found(proof)
            if self._with_records:
                self._compare(view)
        except MusterError as error:
            missing = error
        if self._accuser is not None:
            self._accuser.look(view)
        shown = {} if self._accuser is None else self._accuser.status()
        self._stands = {kept.proof.accused: "this process does not show it" for kept in self._proofs.all()} | shown
        if missing is not None:
            raise missing

    def status(self) -> dict[str, Any]:
        """By signer of what cannot both be: how its showing stands."""
        return {"found": self._stands, "problem": self.problem}

    def _compare(self, view: RunView) -> None:
        """Each record since with the entry at its place. What a reorganisation took away is compared again."""
        runs, run = self.chain.runs(), self.chain.config.run
        first = max(0, view.steps - _STEPS_BACK) if self._compared is None else self._compared
        self._compared = min(first, view.steps)
        for step in range(self._compared, min(view.steps, self._compared + _STEPS_AT_ONCE)):
            recorded = runs.recorded(run, step)
            if recorded is None:
                return
            found = self._reader.entry_at(recorded.number)
            if found is not None and not recorded.says(found[0]):
                log.warning("the keeper recorded another entry for outer step %d than it wrote", step)
                self._found(FoundProof(self.chain.run.keeper, (found[1],), step))
            self._compared = step + 1

    def _found(self, proof: FoundProof) -> None:
        self._unkept.append(proof)
        self._keep()

    def _keep(self) -> None:
        """Write down what was found; what a full disk does not take now it is to take later."""
        while self._unkept:
            proof, pause = self._unkept[0], random.SystemRandom().random() * _SPREAD * self.chain.config.refresh_seconds
            if self._proofs.keep(proof, time.time() + pause):
                log.warning("what %s signed is kept in %s", proof.accused, self._folder / proof.accused)
            del self._unkept[0]


def shown_with(status: Callable[[], dict[str, Any]], watch: ContradictionWatch | None) -> Callable[[], dict[str, Any]]:
    """What people may be shown of a process, with what its watch has found, if it has one."""
    return status if watch is None else lambda: status() | {"contradictions": watch.status()}
