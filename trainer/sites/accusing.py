"""Showing proofs to the contract, each signer's once: whoever shows it pays the gas and gets a twentieth of the stake.

What is still to be shown follows from the chain, which takes each signer's stake once; what was sent is written down
before it is sent, so that a kill or a lost answer costs no second transaction.
"""

import logging
import time
from collections.abc import Callable

from chain.contracts.base import ContractCall
from chain.contracts.site_runs import RunView
from chain.errors import ContractError, TransactionError
from chain.transactions import Receipt
from protocol.amounts import show_tokens
from protocol.errors import IntegrityError, MusterError, printable
from protocol.sites.contradiction import keeper_contradiction, signed_entry, site_contradiction
from trainer.sites.proof_folder import KeptProof, ProofFolder
from trainer.sites.run_chain import SEND_SECONDS, RunChain

log = logging.getLogger("muster.sites")
_AGAIN_SECONDS, _SENT_SECONDS, _MOST_SENT = 60.0, 600.0, 3


class Accuser:
    """Of one run, with the key that `chain` sends with. One thread."""

    def __init__(self, chain: RunChain, proofs: ProofFolder, clock: Callable[[], float] = time.time) -> None:
        self._chain, self._proofs, self._clock = chain, proofs, clock
        self._words: dict[str, str] = {}
        self._about: dict[str, str] = {}

    def look(self, view: RunView) -> None:
        """Show what is found and was not shown yet. `view`: the run on chain, read just now. Raises MusterError."""
        for kept in self._proofs.all():
            accused = kept.proof.accused
            stands = self._standing(kept, view)
            self._say(accused, stands)
            if not stands and self._clock() >= kept.state.not_before:
                self._show(kept)

    def status(self) -> dict[str, str]:
        """By signer of what cannot both be: how the showing stands."""
        return dict(sorted(self._words.items()))

    def _standing(self, kept: KeptProof, view: RunView) -> str:
        """Why there is nothing to do; empty if there is."""
        accused, runs, run = kept.proof.accused, self._chain.runs(), self._chain.config.run
        if accused == self._chain.run.keeper:
            ejected, stake = view.ejected, view.stake
        else:
            found = runs.site_of(run, accused)
            ejected, stake = found.ejected, found.stake
        if ejected:
            return "it was shown"
        if not stake:
            return "it has no stake"
        if kept.state.sent >= _MOST_SENT:
            return f"it was sent {_MOST_SENT} times and not taken: muster site accuse"
        return ""

    def _show(self, kept: KeptProof) -> None:
        try:
            call = self._call(kept)
        except IntegrityError as error:
            self._say(kept.proof.accused, f"the proof that was kept proves nothing: {printable(str(error), 300)}")
            return
        if call is None:
            log.warning("what %s signed contradicts the chain's record no more", kept.proof.accused)
            self._proofs.drop(kept)
            return
        now, sent = self._clock(), kept.state.sent
        self._proofs.note(kept, now + _SENT_SECONDS, sent + 1)
        try:
            receipt = self._chain.runs().client.send(call, timeout=SEND_SECONDS)
        except (ContractError, TransactionError) as error:
            if not error.tx_hash:  # refused before anything was sent
                self._proofs.note(kept, now + _AGAIN_SECONDS, sent)
            self._say(kept.proof.accused, f"not shown yet: {printable(str(error), 300)}", error.hint)
            return
        except MusterError as error:
            self._say(kept.proof.accused, f"not shown yet: {printable(str(error), 300)}", error.hint)
            raise
        reward = self._chain.runs().reward(receipt)
        log.warning(
            "shown on chain that %s signed what cannot both be: %d gas, %.9f ETH, reward %s tokens",
            kept.proof.accused, receipt.gas_used, receipt.fee / 1e18, show_tokens(reward),
        )  # fmt: skip
        self._words[kept.proof.accused] = "it was shown"

    def _call(self, kept: KeptProof) -> ContractCall[Receipt] | None:
        """None where the record that it contradicts is another one since."""
        runs, run, proof = self._chain.runs(), self._chain.config.run, kept.proof
        if proof.step is not None:
            recorded = runs.recorded(run, proof.step)
            entry, signature = signed_entry(proof.statements[0], self._chain.run)
            if recorded is None or recorded.number != entry.number or recorded.says(entry):
                return None
            return runs.accuse_record(run, recorded, entry, signature)
        one, other = proof.statements
        if proof.accused == self._chain.run.keeper:
            return runs.accuse_keeper(run, keeper_contradiction(one, other, self._chain.run))
        return runs.accuse_site(run, site_contradiction(one, other, self._chain.run))

    def _say(self, accused: str, words: str, about: str = "") -> None:
        """On the status, and in the log when what it is `about` changes: amounts of gas change with every block."""
        if words and (about or words) != self._about.get(accused):
            log.warning("the contradiction of %s: %s", accused, words)
            self._about[accused] = about or words
        if words:
            self._words[accused] = words
