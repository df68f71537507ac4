"""Ballots: votes with their salt, on disk before their commitment is sent.

A process killed between commit and reveal must reveal the very same vote: withholding costs more than being wrong.
"""

import json
import re
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from protocol.encoding import canonical_json
from protocol.errors import IntegrityError
from protocol.files import write_atomic

_HEX32 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Ballot:
    """One seat's vote. `where` names the round or trial, such as `lane-1-4-0` (pool, lane, round) or `trial-3`.

    `seed` is the draw's; `codes` the packed codes (a lane) or one code (a jury); `verdict_hash`, `salt`, `commitment`
    have 32 bytes; `commitment` is what the contract's ballotHash gives.
    """

    where: str
    seat: int
    voter: str
    seed: bytes
    files: bytes
    codes: int
    verdict_hash: bytes
    salt: bytes
    commitment: bytes


class BallotBox:
    """All ballots of a process, one file each. Safe to use from one thread at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def keep(self, ballot: Ballot) -> None:
        """Durably store a ballot; returns after fsync."""
        fields = {key: value.hex() if isinstance(value, bytes) else value for key, value in asdict(ballot).items()}
        write_atomic(self._folder / f"{self._stem(ballot)}.json", canonical_json(fields), 0o600)

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
    def _stem(ballot: Ballot) -> str:
        return f"{ballot.where}-seat{ballot.seat}-{ballot.commitment.hex()[:16]}"

    @staticmethod
    def _read(path: Path) -> Ballot:
        try:
            fields = json.loads(path.read_bytes())
            for name in ("seed", "files", "verdict_hash", "salt", "commitment"):
                if not _HEX32.fullmatch(fields[name]):
                    raise ValueError(f"{name} is not 32 bytes")
                fields[name] = bytes.fromhex(fields[name])
            return Ballot(**fields)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise IntegrityError(f"the ballot {path} is damaged: {error}", "move it away; its vote is lost") from None


def new_salt() -> bytes:
    return secrets.token_bytes(32)
