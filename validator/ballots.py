"""Ballots: votes with their salt, on disk before their commitment is sent.

A process killed between commit and reveal must reveal the very same vote: withholding costs more than being wrong.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from protocol.encoding import HEX_RECORD, Bytes32
from protocol.errors import IntegrityError, first_line
from protocol.files import write_atomic


@dataclass(frozen=True)
class Ballot:
    """One seat's vote. `where` names the round or trial, such as `lane-1-4-0` (pool, lane, round) or `trial-3`.

    `seed` is the draw's; `files` what `selectors.files_digest` gives; `codes` the packed codes (a lane) or one code
    (a jury); `commitment` is what the contract's ballotHash gives.
    """

    __pydantic_config__ = HEX_RECORD

    where: str
    seat: int
    voter: str
    seed: Bytes32
    files: Bytes32
    codes: int
    verdict_hash: Bytes32
    salt: Bytes32
    commitment: Bytes32


_BALLOT = TypeAdapter(Ballot)


class BallotBox:
    """All ballots of a process, one file each. Safe to use from one thread at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def keep(self, ballot: Ballot) -> None:
        """Durably store a ballot; returns after fsync."""
        name = f"{ballot.where}-seat{ballot.seat}-{ballot.commitment.hex()[:16]}.json"
        write_atomic(self._folder / name, _BALLOT.dump_json(ballot), 0o600)

    def of(self, where: str, seat: int) -> Iterator[Ballot]:
        """Every ballot of a seat in a round: more than one after a reorganisation changed the draw."""
        for path in sorted(self._folder.glob(f"{where}-seat{seat}-*.json")):
            yield self._read(path)

    def ready(self, where: str, seat: int, seed: bytes, files: bytes) -> Ballot | None:
        """The ballot for this seed and these files, if it was judged already."""
        return next((b for b in self.of(where, seat) if (b.seed, b.files) == (seed, files)), None)

    def committed(self, where: str, seat: int, commitment: bytes) -> Ballot | None:
        """The ballot that hashes to the commitment on chain."""
        return next((b for b in self.of(where, seat) if b.commitment == commitment), None)

    def forget(self, where: str) -> None:
        """Remove a finished round's ballots (call it only after finality)."""
        for path in self._folder.glob(f"{where}-seat*.json"):
            path.unlink(missing_ok=True)

    @staticmethod
    def _read(path: Path) -> Ballot:
        try:
            return _BALLOT.validate_json(path.read_bytes())
        except (OSError, ValueError) as error:
            what = f"the ballot {path} is damaged: {first_line(error)}"
            raise IntegrityError(what, "move it away; its vote is lost") from None
