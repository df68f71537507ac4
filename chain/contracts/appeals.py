"""Disputes, appeals and canaries."""

from collections.abc import Sequence
from dataclasses import dataclass

from eth_abi.abi import encode
from eth_utils.crypto import keccak

from chain.contracts.base import Contract, bytes32
from chain.contracts.pools import Pools
from chain.contracts.token import Params, Token
from chain.records import Submission
from chain.sender import Receipt


class Appeals(Contract):
    """Called by anyone who disagrees with an outcome; deposits are approved as needed."""

    name = "Appeals"

    def deposit_of(self, pool: int, round: int = 0) -> int:
        """Deposit of a dispute (round 0) or an appeal (round 1)."""
        return int(self.read("depositOf", pool, round))

    def dispute(self, submission: Submission) -> int:
        """Dispute the committee's outcome before `final_time`; returns the jury's trial number."""
        token = Token(self.client, self.deployment)
        token.ensure_allowance(self.address, self.deposit_of(submission.pool, 0))
        receipt = self.send("dispute", submission.pool, submission.sequence, submission.file_data)
        return int(self.event(receipt, "Disputed").args["trial"])

    def appeal(self, submission: Submission) -> int:
        """Appeal against the first jury's verdict; returns the second jury's trial number."""
        token = Token(self.client, self.deployment)
        token.ensure_allowance(self.address, self.deposit_of(submission.pool, 1))
        receipt = self.send("appeal", submission.pool, submission.sequence)
        return int(self.event(receipt, "Appealed").args["trial"])

    def conclude(self, submission: Submission) -> Receipt:
        """Keeper: record the first verdict, or resolve for good."""
        return self.send("conclude", submission.pool, submission.sequence, submission.file_data)


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


class Canaries(Contract):
    """Called by pool owners and by those whom an opening accuses; deposits are approved as needed."""

    name = "Canaries"

    @staticmethod
    def leaf(salt: bytes, pool: int, step: int, node: str, counter: int) -> bytes:
        """A canary's leaf; hash the real ones and random padding into a tree of sixteen."""
        words = ["bytes32", "uint256", "uint256", "address", "uint256"]
        return keccak(keccak(encode(words, [bytes32(salt, "salt"), pool, step, node, counter])))

    def open(self, submission: Submission, planted: Planted, rollout: FailingRollout, reason: int) -> Receipt:
        """Open a canary after settlement, within its challenge window, as the pool's owner. `reason`: the reject code
        that an honest check gives. The deposit (accused bonds and jury fees) comes back if the opening stands."""
        token, params = Token(self.client, self.deployment), Params(self.client, self.deployment)
        terms = Pools(self.client, self.deployment).pool_of(submission.pool).terms
        most = terms.committee * params.values()["canarySlash"] + terms.jury * terms.juryFee
        token.ensure_allowance(self.address, most)
        return self.send(
            "open",
            submission.pool,
            submission.sequence,
            submission.file_data,
            (bytes32(planted.salt, "salt"), list(planted.proof)),
            (rollout.row, bytes32(rollout.row_hash, "row hash"), list(rollout.proof)),
            int(reason),
        )

    def contest(self, pool: int, sequence: int) -> int:
        """Ask a jury to look; returns its trial number."""
        deposit = int(self.read("contestDepositOf", pool))
        Token(self.client, self.deployment).ensure_allowance(self.address, deposit)
        receipt = self.send("contest", pool, sequence)
        return int(self.event(receipt, "CanaryContested").args["trial"])

    def conclude(self, submission: Submission) -> Receipt:
        """Keeper: after the contest window, or after the jury."""
        return self.send("conclude", submission.pool, submission.sequence, submission.file_data)
