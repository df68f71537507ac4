"""What others shared and was found true: kept while it may be drawn, never taken twice, bounded in every direction."""

import hashlib
import logging
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from protocol.errors import IntegrityError, MusterError, UnreachableError, printable
from protocol.files import write_atomic
from protocol.swarm.envelope import Envelope, MalformedEnvelope
from protocol.swarm.record import Breach, TruthRecord
from storage.keys import KEY_PATTERN, MissingObjectError
from swarm.config import MixConfig
from swarm.exchange import PREFIX, Exchange
from swarm.inspection import FoundGroup, Inspected, Inspector

log = logging.getLogger("muster.swarm")
REMEMBERED_ROUNDS = 64
"""Of each sharer: what is older than its newest by more is not taken any more."""
_KNOWN = "known.txt"
MAX_LISTED = 100_000
"""Keys of one listing that are looked at."""


@dataclass
class InboxState:
    """What must be as old as the weights. `heard`: sharer → its rounds that were taken → key; `kept`: key → own round
    in which it came; `used`: names of groups among these that were trained on; `records`: sharer → its record."""

    heard: dict[str, dict[int, str]] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    records: dict[str, TruthRecord] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        return {
            "heard": {sharer: {str(n): key for n, key in rounds.items()} for sharer, rounds in self.heard.items()},
            "kept": self.kept,
            "used": sorted(self.used),
            "records": {sharer: vars(record) for sharer, record in self.records.items()},
        }

    @classmethod
    def of(cls, document: dict[str, Any]) -> "InboxState":
        heard = {sharer: {int(n): key for n, key in rounds.items()} for sharer, rounds in document["heard"].items()}
        records = {sharer: TruthRecord(**record) for sharer, record in document["records"].items()}
        return cls(heard, dict(document["kept"]), set(document["used"]), records)


class EnvelopeInbox:
    """`own`: the member's address, whose envelopes are left alone. `secret` orders what is fetched first, so that
    nobody can push others' envelopes to the end. `folder` keeps the envelopes that may be drawn, so that a restart
    needs nobody; without one nothing is kept."""

    def __init__(
        self, inspector: Inspector, mix: MixConfig, own: str, secret: bytes, folder: Path | None = None
    ) -> None:
        self._inspector, self._mix, self._own = inspector, mix, own
        self._secret, self._folder = secret, folder
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        self.state = InboxState()
        self.groups: dict[str, FoundGroup] = {}
        self._keys: dict[str, list[str]] = {}
        self._known: set[str] = set()
        self._later: dict[str, int] = {}
        """Keys that could not be looked at, by the own round in which that was first tried."""
        self._unwritten: list[str] = []

    def look_again(self) -> None:
        """A checkpoint is lost, and with it what was found in envelopes that are noted as known: forget that note."""
        if self._folder is not None:
            (self._folder / _KNOWN).unlink(missing_ok=True)

    def restore(self, state: InboxState) -> None:
        """Go on from a checkpoint. Envelopes that the disk lost are gone."""
        self.state, self.groups, self._keys = state, {}, {}
        self._known = {key for rounds in state.heard.values() for key in rounds.values()} | self._read_known()
        for key in list(state.kept):
            try:
                path = self._path(key)
                found = self._inspector.inspect(path.read_bytes()) if path else None
            except (OSError, MusterError) as error:
                log.warning("envelope %s is lost: %s", key, error)
                found = None
            if found is None:
                del state.kept[key]
            else:
                self._hold(key, found)

    def collect(self, exchange: Exchange, number: int) -> int:
        """Take what is new; how many envelopes were true. `number`: the member's own round. Raises MusterError where
        the exchange is gone."""
        deadline, taken = time.monotonic() + self._mix.seconds, 0
        self._expire(number)
        for key in self._new_keys(exchange, number):
            if time.monotonic() > deadline:
                log.info("inspection took %.0f s: the rest waits for the next round", self._mix.seconds)
                break
            taken += self._take(exchange, key, number)
        return taken

    def unused(self) -> list[FoundGroup]:
        """The groups that may be drawn."""
        return [found for name, found in self.groups.items() if name not in self.state.used]

    def use(self, names: list[str], unfit: list[str]) -> None:
        """These are trained on, or are of no use to this member: neither is drawn again."""
        self.state.used.update(names, unfit)
        for name in unfit:
            self._note(self.groups[name].offer.sharer, unfit=1)

    def _new_keys(self, exchange: Exchange, number: int) -> list[str]:
        """Those that could not be looked at before come last, so that they keep no place from others."""
        for key in [key for key, since in self._later.items() if since + self._mix.window < number]:
            log.info("envelope %s is given up: it could not be looked at for %d rounds", key, self._mix.window)
            self._know(key)
        listed = islice(exchange.keys(), MAX_LISTED)
        new = [key for key in listed if key not in self._known and re.fullmatch(KEY_PATTERN, key)]
        new.sort(key=lambda key: (key in self._later, hashlib.sha256(self._secret + key.encode()).digest()))
        return new[: self._mix.fetch]

    def _take(self, exchange: Exchange, key: str, number: int) -> int:
        try:
            data = exchange.get(key, self._inspector.limits.file_bytes)
            found = self._inspector.inspect(data, self._mix.seconds)
        except (MalformedEnvelope, IntegrityError, MissingObjectError) as error:
            self._know(key)
            log.info("envelope %s is refused: %s", printable(key), printable(str(error)))
            return 0
        except UnreachableError:
            self._later.setdefault(key, number)
            raise
        except MusterError as error:
            # Of this one object: whoever may write there must not cut a member off from all others.
            self._later.setdefault(key, number)
            log.warning("envelope %s cannot be looked at now: %s", key, printable(str(error)))
            return 0
        self._know(key)
        envelope = found.envelope
        if envelope.member == self._own or not self._is_new(envelope, key):
            return 0
        self._hear(envelope, key)
        if found.breach is not None:
            self._blame(envelope.member, found.breach, found.where)
            return 0
        path = self._path(key)
        if path is not None:
            write_atomic(path, data)
        self.state.kept[key] = number
        self._note(envelope.member, true=len(found.groups))
        self._hold(key, found)
        return 1

    def _is_new(self, envelope: Envelope, key: str) -> bool:
        rounds = self.state.heard.get(envelope.member, {})
        before = rounds.get(envelope.round)
        if before is not None:
            if before != key:
                self._blame(envelope.member, Breach.TWO_ENVELOPES, f"round {envelope.round}")
            return False
        return envelope.round > max(rounds, default=0) - REMEMBERED_ROUNDS

    def _hear(self, envelope: Envelope, key: str) -> None:
        rounds = self.state.heard.setdefault(envelope.member, {})
        rounds[envelope.round] = key
        newest = max(rounds)
        for old in [one for one in rounds if one <= newest - REMEMBERED_ROUNDS]:
            del rounds[old]

    def _hold(self, key: str, found: Inspected) -> None:
        self._keys[key] = [one.offer.name for one in found.groups]
        self.groups.update({one.offer.name: one for one in found.groups})

    def _expire(self, number: int) -> None:
        for key in [key for key, came in self.state.kept.items() if came + self._mix.window < number]:
            del self.state.kept[key]
            for name in self._keys.pop(key, ()):
                self.groups.pop(name, None)
                self.state.used.discard(name)

    def clean(self) -> None:
        """Note on disk which keys need no look any more, and delete the files of envelopes that no checkpoint needs.
        Call it after one was written."""
        if self._folder is None:
            return
        with (self._folder / _KNOWN).open("a") as file:
            file.writelines(f"{key}\n" for key in self._unwritten)
        self._unwritten.clear()
        for path in self._files():
            if PREFIX + path.name not in self.state.kept:
                path.unlink(missing_ok=True)

    def _know(self, key: str) -> None:
        self._later.pop(key, None)
        self._known.add(key)
        self._unwritten.append(key)

    def _read_known(self) -> set[str]:
        """A line that a kill cut off is no key, and costs a second look."""
        path = self._path(_KNOWN)
        return set(path.read_text().split()) if path is not None and path.is_file() else set()

    def _files(self) -> Iterator[Path]:
        return iter(()) if self._folder is None else (self._folder / PREFIX).glob("*.json")

    def _path(self, key: str) -> Path | None:
        return None if self._folder is None else self._folder / key

    def _blame(self, sharer: str, breach: Breach, where: str) -> None:
        log.warning("%s is found out: %s, %s", sharer, breach.value, where)
        self._note(sharer, breaches=1)

    def _note(self, sharer: str, **more: int) -> None:
        self.state.records[sharer] = self.state.records.get(sharer, TruthRecord()).plus(**more)
