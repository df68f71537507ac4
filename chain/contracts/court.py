"""Committees and juries: hidden votes, settlement, fees."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from chain.contracts.base import Contract, ContractCall
from chain.errors import ContractError
from chain.records import Submission, Terms
from chain.transactions import Receipt
from protocol.encoding import encode_words
from protocol.keccak import keccak
from protocol.receipts import UploadReceipt

Place = tuple[int, ...]
"""Where votes are cast: (pool, lane, round) at Court, (trial,) at Juries."""
_NOT_YET = frozenset({"SeedNotMined", "NoSuchLane", "NoSuchTrial"})


@dataclass(frozen=True)
class Committee:
    """`seats[j]` votes with the key `voters[j]` as member (juror) j. `seed` is the draw's."""

    seats: tuple[int, ...]
    voters: tuple[str, ...]
    seed: bytes


class BallotContract(Contract):
    """A contract at which drawn members commit to hidden votes, reveal them and are paid."""

    committee_view = ""
    close_function, closed_event = "", ""

    def committee_of(self, place: Place) -> Committee | None:
        """Committee or jury, drawn or not; None while its seed block is not mined."""
        try:
            seats, voters, seed, _ = self.read(self.committee_view, *place)
        except ContractError as error:
            if error.name in _NOT_YET:
                return None
            raise
        return Committee(tuple(seats), tuple(voters), seed)

    def ballot_hash(self, place: Place, voter: str, codes: int, verdict_hash: bytes, salt: bytes) -> bytes:
        """The commitment to a vote, computed locally."""
        return keccak(encode_words(self.deployment.chain_id, self.address, *place, voter, codes, verdict_hash, salt))

    def commit(self, place: Place, member: int, commitment: bytes) -> ContractCall[Receipt]:
        """Send the hidden vote."""
        return self.call("commit", *place, member, commitment)

    def reveal(self, place: Place, member: int, codes: int, verdict_hash: bytes, salt: bytes) -> ContractCall[Receipt]:
        """Open the vote."""
        return self.call("reveal", *place, member, codes, verdict_hash, salt)

    def vote(self, place: Place, member: int, codes: int, verdict_hash: bytes, salt: bytes) -> ContractCall[Receipt]:
        """Commit and open the vote at once, as the last member to commit.

        Sending raises ContractError, before anything is sent, while anybody else has not committed.
        """
        return self.call("vote", *place, member, codes, verdict_hash, salt)

    def close(self, place: Place, member: int) -> ContractCall[int]:
        """Pay one member once nothing can change any more; returns the grains its seat's owner got."""
        return self._returning(self.call(self.close_function, *place, member), self.closed_event, "paid")


class Court(BallotContract):
    """Called by validators' voting keys and keepers."""

    name = "Court"
    committee_view = "committeeOf"
    close_function, closed_event = "closeMember", "MemberClosed"

    def set_service(self, pool: int, service: str) -> ContractCall[Receipt]:
        """Name the key that attests uploads and signs receipts; the pool's owner."""
        return self.call("setService", pool, service)

    def announce_service(self, pool: int, url: str) -> ContractCall[Receipt]:
        """Say where the pool's service answers; the pool's owner."""
        return self.call("announceService", pool, url)

    def staffed(self, pool: int) -> bool:
        """Whether the pool's class has enough seats in this epoch."""
        return bool(self.read("staffed", pool))

    def attest(self, pool: int, lane: int, places: int) -> ContractCall[Receipt]:
        """The service: the bytes of these files (bit p for place p) are in the pool's storage."""
        return self.call("attest", pool, lane, places)

    def attest_by_receipt(self, file: Submission, receipt: UploadReceipt) -> ContractCall[Receipt]:
        """Anybody: the same for one file, by its receipt."""
        return self.call("attestByReceipt", file.pool, file.sequence, file.file_data, receipt.on_chain)

    def terms_of(self, pool: int) -> Terms:
        return Terms.of(self.read("termsOf", pool))

    def vote(self, place: Place, member: int, codes: int, verdict_hash: bytes, salt: bytes) -> ContractCall[Receipt]:
        """See BallotContract; a committee's needs no salt."""
        return self.call("vote", *place, member, codes, verdict_hash)

    def reveal_and_settle(
        self, place: Place, member: int, codes: int, verdict_hash: bytes, salt: bytes, files: Sequence[Submission]
    ) -> ContractCall[Receipt]:
        """The last revealer's reveal, with the settlement of the round.

        Sending raises ContractError, before anything is sent, while another reveal is neither mined nor pending.
        """
        refs = [file.file_ref for file in files]
        return replace(self.call("revealAndSettle", *place, member, codes, verdict_hash, salt, refs), pending=True)

    def settle(self, place: Place, files: Sequence[Submission]) -> ContractCall[Receipt]:
        """Tally a round; `files` are all of the lane's submissions in order (`State.files_of(lane)`)."""
        return self.call("settle", *place, [file.file_ref for file in files])


class Juries(BallotContract):
    """Called by jurors' voting keys and keepers."""

    name = "Juries"
    committee_view = "juryOf"
    close_function, closed_event = "closeJuror", "JurorClosed"

    def draw(self, trial: int) -> ContractCall[Receipt]:
        return self.call("draw", trial)
