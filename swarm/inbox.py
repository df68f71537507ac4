"""What others shared and was found true: kept while it may be drawn, never taken twice, bounded in every direction."""

import hashlib
import logging
import math
import re
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

from protocol.errors import IntegrityError, MusterError, UnreachableError, printable
from protocol.files import write_atomic
from protocol.swarm.envelope import Envelope, MalformedEnvelope
from protocol.swarm.places import DrawnLately
from protocol.swarm.record import Breach, TruthRecord
from storage.keys import KEY_PATTERN, MissingObjectError
from swarm.config import MixConfig
from swarm.exchange import MOST_LISTED, EnvelopeSource
from swarm.inbox_state import InboxState
from swarm.inspection import FoundGroup, Inspected, Inspector, NotRead
from swarm.listing import PREFIX, ListingEntry, same_turns
from swarm.turns import SharersTurns

log = logging.getLogger("muster.swarm")
REMEMBERED_ROUNDS = 64
"""Of each sharer: what is older than its newest by more is not taken any more."""
LISTING = 0.5
"""Of the time for inspection, how much a listing may take before it."""
LATELY = 16
"""Own rounds over which sharers are compared by how often they were drawn, and after which one that shares nothing has
departed."""
_KNOWN = "known.txt"
_KEY = re.compile(KEY_PATTERN)


class EnvelopeInbox:
    """`own`: the member's address. Its envelopes are left alone; which were found is in `own_found`, (round, key), for
    the caller to take. `secret` orders what is fetched first, so that
    nobody can push others' envelopes to the end. `folder` keeps the envelopes that may be drawn, so that a restart
    needs nobody; without one nothing is kept."""

    def __init__(
        self,
        inspector: Inspector,
        mix: MixConfig,
        own: str,
        secret: bytes,
        folder: Path | None = None,
    ) -> None:
        self._inspector, self._mix, self._own = inspector, mix, own
        self._secret, self._folder = secret, folder
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        self.state = InboxState()
        self.own_found: list[tuple[int, str]] = []
        self.groups: dict[str, FoundGroup] = {}
        self._keys: dict[str, list[str]] = {}
        self._known: set[str] = set()
        self._later: dict[str, int] = {}
        """Places that could not be looked at, by the own round in which that was first tried."""
        self._unwritten: list[str] = []
        self._turns = SharersTurns(mix)

    def look_again(self) -> None:
        """A checkpoint is lost, and with it what was found in envelopes that are noted as known: forget that note."""
        if self._folder is not None:
            (self._folder / _KNOWN).unlink(missing_ok=True)

    def restore(self, state: InboxState) -> None:
        """Go on from a checkpoint. Envelopes that the disk lost are gone."""
        self.state, self.groups, self._keys = state, {}, {}
        self._known = {key for rounds in state.heard.values() for key in rounds.values()} | self._read_known()
        self._reopen()

    def _reopen(self) -> None:
        """Read those from disk that may be drawn and were not read since the start. What cannot be judged now, as
        without chain or sandbox, is tried again in the next round, and stays known as used until it was."""
        deadline = time.monotonic() + self._mix.seconds
        for key in [key for key in self.state.kept if key not in self._keys]:
            left = deadline - time.monotonic()
            if left <= 0:
                return
            try:
                self._hold(key, self._kept(key, left))
            except (OSError, MalformedEnvelope) as error:
                log.warning("envelope %s is lost: %s", key, error)
                del self.state.kept[key]
            except MusterError as error:
                log.info("envelope %s waits: %s", key, error)
        if all(key in self._keys for key in self.state.kept):
            self.state.used.intersection_update(self.groups)

    def _kept(self, key: str, seconds: float) -> Inspected:
        """As `Inspector.inspect`, from disk. Raises OSError too."""
        path = self._path(key)
        if path is None:
            raise MalformedEnvelope("nothing is kept without a folder")
        return self._inspector.inspect(path.read_bytes(), lambda _: seconds)

    def collect(self, exchange: EnvelopeSource, number: int) -> int:
        """Take what is new; how many envelopes were true. `number`: the member's own round. Raises MusterError where
        the exchange is gone."""
        self._expire(number)
        self._reopen()
        self._turns.next_round()
        new, taken = self._new(exchange, number), 0
        deadline = time.monotonic() + self._mix.seconds
        for entry in new:
            if time.monotonic() > deadline:
                log.info("inspection took %.0f s: the rest waits for the next round", self._mix.seconds)
                break
            taken += self._take(exchange, entry, number)
        return taken

    def unused(self) -> list[FoundGroup]:
        """The groups that may be drawn."""
        return [found for name, found in self.groups.items() if name not in self.state.used]

    @property
    def sharers(self) -> int:
        """How many shared something true lately and were never found out. Who has departed takes no place."""
        records = self.state.records
        return sum(sharer not in records or not records[sharer].breaches for sharer in self.state.last)

    def lately(self) -> dict[str, DrawnLately]:
        """How many groups of each sharer the newest own rounds were trained on, and how many they doubted."""
        trained, doubted = (
            Counter(sharer for sharers in rounds for sharer in sharers)
            for rounds in (self.state.drawn, self.state.doubted)
        )
        return {one: DrawnLately(trained[one], doubted[one]) for one in trained | doubted}

    def use(self, names: list[str], unfit: list[str], doubted: list[str]) -> None:
        """These are trained on, or are of no use to this member, or nothing that it would have said:
        none of them is drawn again."""
        self.state.used.update(names, unfit, doubted)
        drawn, doubts = ([self.groups[name].offer.sharer for name in those] for those in (names, doubted))
        self.state.drawn = [*self.state.drawn, drawn][-LATELY:]
        self.state.doubted = [*self.state.doubted, doubts][-LATELY:]
        for kind, those in {"trained": names, "unfit": unfit, "doubted": doubted}.items():
            for name in those:
                self._note(self.groups[name].offer.sharer, **{kind: 1})

    def _new(self, exchange: EnvelopeSource, number: int) -> list[ListingEntry]:
        """As many as may be fetched, of every sharer as many. Those that could not be looked at before come last, so
        that they keep no place from others."""
        for place in [place for place, since in self._later.items() if since + self._mix.window < number]:
            log.info("envelope %s is given up: it could not be looked at for %d rounds", place, self._mix.window)
            self._know(place)
        listed = _in_time(exchange.listed(), LISTING * self._mix.seconds)
        new = (one for one in listed if one.key not in self._known and self._is_new_at(one))
        return same_turns(islice(new, MOST_LISTED), self._mix.fetch, self._rank, partial(self._order, number))

    def _is_new_at(self, entry: ListingEntry) -> bool:
        return _KEY.fullmatch(entry.key) is not None and (not entry.sharer or entry.place not in self._known)

    def _rank(self, entry: ListingEntry) -> tuple[bool, bytes]:
        place = entry.place
        return place in self._later, hashlib.sha256(self._secret + place.encode()).digest()

    def _order(self, number: int, sharer: str) -> bytes:
        return hashlib.sha256(self._secret + number.to_bytes(8, "big") + sharer.encode()).digest()

    def _take(self, exchange: EnvelopeSource, entry: ListingEntry, number: int) -> int:
        key, place = entry.key, entry.place
        try:
            data = exchange.get(entry, self._inspector.limits.file_bytes)
            found = self._inspector.inspect(data, lambda opened: self._allow(opened, entry, number))
        except NotRead as refused:
            self._know(key)
            self._later.pop(place, None)
            self._is_fresh(refused.envelope, key)
            log.info("envelope %s is refused: %s", place, refused)
            return 0
        except (MalformedEnvelope, IntegrityError, MissingObjectError) as error:
            # Of this place alone: whoever may write puts a wrong copy of what is right elsewhere.
            self._know(place)
            log.info("envelope %s is refused: %s", place, printable(str(error)))
            return 0
        except UnreachableError:
            self._later.setdefault(place, number)
            raise
        except MusterError as error:
            # Of this one object: whoever may write there must not cut a member off from all others.
            self._later.setdefault(place, number)
            log.warning("envelope %s cannot be looked at now: %s", place, printable(str(error)))
            return 0
        finally:
            self._turns.end()
        self._later.pop(place, None)
        self._know(key)
        envelope = found.envelope
        if not self._is_fresh(envelope, key):
            return 0
        self._hear(envelope, key)
        self._turns.took(envelope, number)
        if found.breach is not None:
            self._blame(envelope.member, found.breach, found.where)
            return 0
        path = self._path(key)
        if path is not None:
            write_atomic(path, data)
        self.state.kept[key] = self.state.last[envelope.member] = number
        self._note(envelope.member, true=len(found.groups))
        self._hold(key, found)
        return 1

    def _allow(self, envelope: Envelope, entry: ListingEntry, number: int) -> float:
        """Seconds for scoring it. Raises MalformedEnvelope where it lies below another's address, for it would have had
        that one's turn; NotRead where there is nothing to score: of a round that is known another envelope is a breach,
        whatever is in it and however much time its sharer has left."""
        if entry.sharer not in ("", envelope.member.lower()):
            raise MalformedEnvelope(f"it is {envelope.member}'s, and lies below {entry.sharer}")
        if envelope.member == self._own or envelope.round in self.state.heard.get(envelope.member, ()):
            raise NotRead(envelope, f"round {envelope.round} of {envelope.member} is known")
        return self._turns.begin(envelope, number)

    def _is_fresh(self, envelope: Envelope, key: str) -> bool:
        """Whether it is the first of its round, of another member, and not too old."""
        if envelope.member == self._own:
            self.own_found.append((envelope.round, key))
            return False
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
        for sharer in [sharer for sharer, came in self.state.last.items() if came + LATELY < number]:
            del self.state.last[sharer]

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

    def _know(self, name: str) -> None:
        """A content address that is looked at nowhere any more, or one place."""
        self._later.pop(name, None)
        self._known.add(name)
        self._unwritten.append(name)

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


def _in_time(listed: Iterator[ListingEntry], seconds: float) -> Iterator[ListingEntry]:
    """What comes within so many seconds of the first, for which an exchange has its own time."""
    until = math.inf
    for one in listed:
        yield one
        now = time.monotonic()
        if now >= until:
            log.info("the listing took longer than %.0f s: the rest is left out", seconds)
            return
        until = min(until, now + seconds)
