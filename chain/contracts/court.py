"""Committees and juries: hidden votes, settlement, fees."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from eth_abi.abi import encode
from eth_utils.crypto import keccak

from chain.contracts.base import Contract, ContractCall, bytes32, integer
from chain.errors import ContractError
from chain.records import Submission
from chain.transactions import Receipt

_UINT64 = (1 << 64) - 1
_NOT_YET = frozenset({"SeedNotMined", "NoSuchLane", "NoSuchTrial"})


@dataclass(frozen=True)
class Committee:
    """`seats[j]` and its voting key `voters[j]` are member (juror) j's. `seed` is the lane's or trial's."""

    seats: tuple[int, ...]
    voters: tuple[str, ...]
    seed: bytes
    drawn: bool


class Court(Contract):
    """Called by validators' voting keys and keepers."""

    name = "Court"

    def committee_of(self, pool: int, lane: int, round: int) -> Committee | None:
        """The committee, drawn or not; None while its seed block is not mined."""
        try:
            seats, voters, seed, drawn = self.read("committeeOf", pool, lane, round)
        except ContractError as error:
            if error.name in _NOT_YET:
                return None
            raise
        return Committee(tuple(seats), tuple(voters), seed, drawn)

    def ballot_hash(
        self, pool: int, lane: int, round: int, voter: str, codes: int, verdict_hash: bytes, salt: bytes
    ) -> bytes:
        """The commitment to a vote, computed locally."""
        words = ["uint256", "address", "uint256", "uint256", "uint256", "address", "uint256", "bytes32", "bytes32"]
        values = [
            self.deployment.chain_id,
            self.address,
            pool,
            lane,
            round,
            voter,
            integer(codes, _UINT64, "codes"),
            bytes32(verdict_hash, "verdict hash"),
            bytes32(salt, "salt"),
        ]
        return keccak(encode(words, values))

    def commit_votes(self, pool: int, lane: int, round: int, member: int, commitment: bytes) -> ContractCall[Receipt]:
        return self._call("commit", pool, lane, round, member, bytes32(commitment, "commitment"))

    def reveal_votes(
        self, pool: int, lane: int, round: int, member: int, codes: int, verdict_hash: bytes, salt: bytes
    ) -> ContractCall[Receipt]:
        return self._call("reveal", pool, lane, round, member, codes, verdict_hash, salt)

    def reveal_and_settle(
        self,
        pool: int,
        lane: int,
        round: int,
        member: int,
        codes: int,
        verdict_hash: bytes,
        salt: bytes,
        files: Sequence[Submission],
    ) -> ContractCall[Receipt]:
        """The last revealer's reveal, with the settlement of the round.

        Sending raises ContractError, before anything is sent, while another reveal is neither mined nor pending.
        """
        refs = [file.file_ref for file in files]
        call = self._call("revealAndSettle", pool, lane, round, member, codes, verdict_hash, salt, refs)
        return replace(call, pending=True)

    def settle(self, pool: int, lane: int, round: int, files: Sequence[Submission]) -> ContractCall[Receipt]:
        """Tally a round; `files` are all of the lane's submissions in order (`State.files_of(lane)`)."""
        return self._call("settle", pool, lane, round, [file.file_ref for file in files])

    def close_member(self, pool: int, lane: int, round: int, member: int) -> ContractCall[int]:
        """Pay one member of a settled and final round; returns the grains its seat's owner got."""
        return self._returning(self._call("closeMember", pool, lane, round, member), "MemberClosed", "paid")


class Juries(Contract):
    """Called by jurors' voting keys and keepers."""

    name = "Juries"

    def jury_of(self, trial: int) -> Committee | None:
        """The jury, drawn or not; None while its seed block is not mined."""
        try:
            seats, voters, seed, drawn = self.read("juryOf", trial)
        except ContractError as error:
            if error.name in _NOT_YET:
                return None
            raise
        return Committee(tuple(seats), tuple(voters), seed, drawn)

    def ballot_hash(self, trial: int, voter: str, code: int, verdict_hash: bytes, salt: bytes) -> bytes:
        """The commitment to a juror's vote, computed locally."""
        words = ["uint256", "address", "uint256", "address", "uint256", "bytes32", "bytes32"]
        values = [
            self.deployment.chain_id,
            self.address,
            trial,
            voter,
            integer(code, 15, "code"),
            bytes32(verdict_hash, "verdict hash"),
            bytes32(salt, "salt"),
        ]
        return keccak(encode(words, values))

    def commit_vote(self, trial: int, juror: int, commitment: bytes) -> ContractCall[Receipt]:
        return self._call("commit", trial, juror, bytes32(commitment, "commitment"))

    def reveal_vote(self, trial: int, juror: int, code: int, verdict_hash: bytes, salt: bytes) -> ContractCall[Receipt]:
        return self._call("reveal", trial, juror, code, verdict_hash, salt)

    def draw(self, trial: int) -> ContractCall[Receipt]:
        return self._call("draw", trial)

    def close_juror(self, trial: int, juror: int) -> ContractCall[int]:
        """Pay one juror of a concluded trial; returns the grains its seat's owner got."""
        return self._returning(self._call("closeJuror", trial, juror), "JurorClosed", "paid")
