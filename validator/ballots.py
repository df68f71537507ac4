"""Ballots: votes with their salt, on disk before their commitment is sent.

A process killed between commit and reveal must reveal the very same vote: withholding costs more than being wrong.
"""

import logging
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from protocol.encoding import HEX_RECORD, Bytes32
from protocol.errors import first_line
from protocol.files import write_atomic

log = logging.getLogger("muster.validator")


@dataclass(frozen=True)
class Ballot:
    """One seat's vote. `where` names the round or trial, such as `lane-1-4-0` (pool, lane, round) or `trial-3`; `seed`
    is the draw's; `files` what `decide.files_digest` gives; `codes` the packed codes (a lane) or one code (a jury)."""

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

    @property
    def opening(self) -> tuple[int, bytes, bytes]:
        return self.codes, self.verdict_hash, self.salt

    @property
    def file_name(self) -> str:
        return f"{self.where}-seat{self.seat}-{self.commitment.hex()[:16]}.json"


_BALLOT = TypeAdapter(Ballot)


class BallotStore:
    """All ballots of a process, one file each, read once at the start. A damaged file is moved to `damaged/` and
    reported: no other vote is lost. One thread at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._damaged = folder, folder / "damaged"
        folder.mkdir(parents=True, exist_ok=True)
        self._ballots: dict[str, list[Ballot]] = {}  # by round or trial; more than one of a seat if it was redrawn
        for path in sorted(folder.glob("*.json")):
            self._load(path)

    def _load(self, path: Path) -> None:
        try:
            ballot = _BALLOT.validate_json(path.read_bytes())
            if ballot.file_name != path.name:
                raise ValueError("it is another ballot's")
        except (OSError, ValueError) as error:
            self._damaged.mkdir(exist_ok=True)
            path.rename(self._damaged / path.name)
            log.error(
                "the ballot %s is damaged (%s) and was moved to %s: if its vote is committed and not revealed yet, the "
                "seat cannot reveal it and is fined", path.name, first_line(error), self._damaged,
            )  # fmt: skip
            return
        self._ballots.setdefault(ballot.where, []).append(ballot)

    def keep(self, ballot: Ballot) -> None:
        """Store a ballot durably; returns after fsync."""
        write_atomic(self._folder / ballot.file_name, _BALLOT.dump_json(ballot), 0o600)
        self._ballots.setdefault(ballot.where, []).append(ballot)

    def ready(self, where: str, seat: int, seed: bytes, files: bytes, voter: str) -> Ballot | None:
        """Return the ballot for this seed and these files, if it was judged already; a commitment hides who makes it,
        so it is the ballot of one voting key."""
        wanted = seat, seed, files, voter
        for ballot in self._ballots.get(where, ()):
            if (ballot.seat, ballot.seed, ballot.files, ballot.voter) == wanted:
                return ballot
        return None

    def committed(self, where: str, seat: int, commitment: bytes) -> Ballot | None:
        ballots = self._ballots.get(where, ())
        return next((ballot for ballot in ballots if (ballot.seat, ballot.commitment) == (seat, commitment)), None)

    def why_lost(self, where: str, seat: int, commitment: bytes) -> str:
        """Say what became of a committed ballot that the store does not hold."""
        damaged = self._damaged / f"{where}-seat{seat}-{commitment.hex()[:16]}.json"
        return f"its file is damaged: {damaged}" if damaged.exists() else f"no such file is in {self._folder}"

    @property
    def names(self) -> set[str]:
        return set(self._ballots)

    def cast_by(self, voters: Container[str]) -> set[str]:
        """Return the names of the rounds and trials in which one of these keys may have voted."""
        return {name for name, ballots in self._ballots.items() if any(ballot.voter in voters for ballot in ballots)}

    def forget(self, where: str) -> None:
        """Delete the ballots of a round or trial whose outcome is final."""
        for ballot in self._ballots.pop(where, ()):
            (self._folder / ballot.file_name).unlink(missing_ok=True)
