"""Disputes, appeals and canaries."""

from collections.abc import Sequence
from dataclasses import dataclass

from chain.contracts.base import ContractCall
from chain.contracts.court import Court
from chain.contracts.token import Params, TokenTaker
from chain.records import Submission
from chain.transactions import Receipt
from protocol.accounts import LocalAccount
from protocol.encoding import encode_words
from protocol.keccak import keccak

CONSENT = "CarrierConsent(bytes32 leaf)"


class Appeals(TokenTaker):
    """Called by anyone who disagrees with an outcome."""

    name = "Appeals"

    def dispute(self, submission: Submission) -> ContractCall[int]:
        """Dispute the committee's outcome before `final_time`; returns the jury's trial number."""
        deposit = int(self.read("depositOf", submission.pool, 0))
        call = self._taking(deposit, "dispute", submission.pool, submission.sequence, submission.file_data)
        return self._returning(call, "Disputed", "trial")

    def conclude(self, submission: Submission) -> ContractCall[Receipt]:
        """Keeper: record the first verdict, or resolve for good."""
        return self.call("conclude", submission.pool, submission.sequence, submission.file_data)


@dataclass(frozen=True)
class Planted:
    """A canary's place in its step's root: the owner's salt, and the proof (pairs sorted)."""

    salt: bytes
    proof: Sequence[bytes]


@dataclass(frozen=True)
class FailingRollout:
    """The rollout that fails: row number, keccak256 of its row bytes, its proof in the file's root."""

    row: int
    row_hash: bytes
    proof: Sequence[bytes]


class Canaries(TokenTaker):
    """Called by pool owners, for files whose nodes' keys they have."""

    name = "Canaries"

    @staticmethod
    def leaf(salt: bytes, pool: int, step: int, node: str, counter: int) -> bytes:
        """A canary's leaf; hash the real ones and random padding into a tree of sixteen."""
        return keccak(keccak(encode_words(salt, pool, step, node, counter)))

    def open(
        self, submission: Submission, planted: Planted, carrier: LocalAccount, rollout: FailingRollout, reason: int
    ) -> ContractCall[Receipt]:
        """Open a canary after settlement, within its challenge window, as the pool's owner. `carrier`: the key of the
        file's node, which consents. `reason`: the reject code that an honest check gives. The deposit (accused bonds
        and jury fees) comes back if the opening stands."""
        params = Params(self.client, self.deployment).values()
        terms = Court(self.client, self.deployment).terms_of(submission.pool)
        # The jurors of a dispute that the opening ends are paid, too.
        fees = terms.jury + terms.appealJury if submission.disputed else 0
        return self._taking(
            terms.committee * params["canarySlash"] + (terms.jury + fees) * terms.juryFee,
            "open",
            submission.pool,
            submission.sequence,
            submission.file_data,
            (planted.salt, list(planted.proof), self._consent(submission, planted, carrier)),
            (rollout.row, rollout.row_hash, list(rollout.proof)),
            int(reason),
        )

    def _consent(self, submission: Submission, planted: Planted, carrier: LocalAccount) -> bytes:
        at = submission.pool, submission.step, submission.node, submission.counter
        return self.signed(carrier, "muster-canaries", CONSENT, self.leaf(planted.salt, *at))

    def conclude(self, submission: Submission) -> ContractCall[Receipt]:
        """Keeper: after the jury, or at once when nobody is accused."""
        return self.call("conclude", submission.pool, submission.sequence, submission.file_data)
