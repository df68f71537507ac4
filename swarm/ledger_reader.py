"""Reads a swarm's ledger: first whose envelopes lie there, then, of everybody as many and the newest, what they say.

Nothing is believed: every envelope that counts is judged anew. A key does not tell whose an envelope is, so the first
is bounded by time alone, in an order that nobody knows before; the second, which costs most, by a number, too."""

import heapq
import random
import re
import statistics
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from environments.texts import TextEnvironments
from protocol.errors import IntegrityError, MusterError, UnreachableError
from protocol.swarm.envelope import EnvelopeLimits, MalformedEnvelope, open_envelope
from protocol.swarm.record import Breach
from protocol.swarm.seeds import NO_START
from storage.keys import KEY_PATTERN, MissingObjectError
from swarm.exchange import MOST_LISTED, EnvelopeSource
from swarm.inspection import Inspected, Inspector
from swarm.ledger import MemberContribution, SwarmLedger
from swarm.listing import ListingEntry
from swarm.shares import same_shares
from swarm.standings import MemberStanding, StandingsOf

LISTING, OPENING = 0.25, 0.5
"""Of the time: when the listing ends, and when the last envelope is opened to see whose it is."""
_AT_ONCE = 256
"""Envelopes whose signers the chain is asked about together."""
_KEPT_BYTES = 64 << 20
"""Of envelopes that were opened; others are fetched again when they are judged."""
_KEY = re.compile(KEY_PATTERN)


@dataclass(frozen=True)
class _Opened:
    round: int
    entry: ListingEntry


class LedgerReader:
    """Reads an exchange once. `texts` score on this machine."""

    def __init__(self, limits: EnvelopeLimits, texts: TextEnvironments, standings: StandingsOf) -> None:
        self._limits, self._ask = limits, standings
        self._standings: dict[str, MemberStanding] = {}
        self._strangers: set[str] = set()
        self._inspector = Inspector(limits, texts, self._is_member, self._start_of)
        self._ledger = SwarmLedger()
        self._kept: dict[ListingEntry, bytes] = {}
        self._room = _KEPT_BYTES

    def read(self, exchange: EnvelopeSource, most: int, seconds: float) -> SwarmLedger:
        """For about so long; at most so many envelopes are judged: of every member as many, its newest rounds. Raises
        MusterError where exchange or chain is gone."""
        ledger, began = self._ledger, time.monotonic()
        listed = self._listed(exchange, began + LISTING * seconds)
        wanted = self._opened(exchange, listed, began + OPENING * seconds)
        chosen = same_shares(wanted, most)
        for member, mine in wanted.items():
            ledger.members[member].left_out = len(mine) - len(chosen[member])
        self._judge_all(exchange, chosen, began + seconds)
        ledger.whole &= not any(one.left_out for one in ledger.members.values())
        return ledger

    def _listed(self, exchange: EnvelopeSource, until: float) -> list[ListingEntry]:
        """In any order: whoever makes keys would else choose which are looked at."""
        found = (one for one in exchange.listed() if _KEY.fullmatch(one.key))
        listed = list(dict.fromkeys(islice(_before(until, found), MOST_LISTED + 1)))
        self._ledger.whole = len(listed) <= MOST_LISTED and time.monotonic() < until
        random.SystemRandom().shuffle(listed)
        return listed[:MOST_LISTED]

    def _opened(
        self, exchange: EnvelopeSource, listed: Iterable[ListingEntry], until: float
    ) -> dict[str, list[ListingEntry]]:
        """Of every member, where one envelope a round lies, the newest first."""
        rounds: dict[str, dict[int, ListingEntry]] = {}
        for part in self._parts(exchange, listed, until):
            self._stand({member for member, _ in part})
            for member, one in part:
                if not self._is_member(member):
                    self._ledger.refused += 1
                    self._room += len(self._kept.pop(one.entry, b""))
                    continue
                contribution, mine = self._of(member), rounds.setdefault(member, {})
                before = mine.setdefault(one.round, one.entry)
                if before.key != one.entry.key:
                    contribution.breaches[Breach.TWO_ENVELOPES.value] += 1
                # The same one counts for everybody who looks, whatever a listing begins with.
                mine[one.round] = min(one.entry, before)
        newest_first = {member: sorted(mine.items(), reverse=True) for member, mine in rounds.items()}
        return {member: [entry for _, entry in mine] for member, mine in newest_first.items()}

    def _parts(
        self, exchange: EnvelopeSource, listed: Iterable[ListingEntry], until: float
    ) -> Iterator[list[tuple[str, _Opened]]]:
        part: list[tuple[str, _Opened]] = []
        for entry in listed:
            if time.monotonic() >= until:
                self._ledger.whole = False
                break
            self._ledger.envelopes += 1
            data = self._fetched(exchange, entry)
            if data is None:
                continue
            try:
                envelope = open_envelope(data, self._limits)
            except MalformedEnvelope:
                self._ledger.refused += 1
                continue
            self._keep(entry, data)
            part.append((envelope.member, _Opened(envelope.round, entry)))
            if len(part) == _AT_ONCE:
                yield part
                part = []
        yield part

    def _fetched(self, exchange: EnvelopeSource, entry: ListingEntry) -> bytes | None:
        try:
            return exchange.get(entry, self._limits.file_bytes)
        except (IntegrityError, MissingObjectError):
            self._ledger.refused += 1
        except UnreachableError:
            raise
        except MusterError:
            # Of this one object: whoever may write there must not hide all others.
            self._ledger.unjudged += 1
        return None

    def _judge_all(self, exchange: EnvelopeSource, chosen: dict[str, list[ListingEntry]], until: float) -> None:
        """Whose envelopes took least time comes next, so that texts which are slow to score keep nobody's from it."""
        left = {member: iter(mine) for member, mine in chosen.items()}
        turns = [(0.0, place, member) for place, member in enumerate(chosen)]
        while turns and (seconds := until - time.monotonic()) > 0:
            spent, place, member = turns[0]
            entry = next(left[member], None)
            if entry is None:
                heapq.heappop(turns)
                continue
            began = time.monotonic()
            self._judge(exchange, entry, seconds / len(turns))
            heapq.heapreplace(turns, (spent + time.monotonic() - began, place, member))
        for _, _, member in turns:
            self._of(member).left_out += sum(1 for _ in left[member])

    def _judge(self, exchange: EnvelopeSource, entry: ListingEntry, seconds: float) -> None:
        data = self._kept.pop(entry, None) or self._fetched(exchange, entry)
        if data is None:
            return
        try:
            found = self._inspector.inspect(data, lambda _: seconds)
        except MusterError:
            self._ledger.unjudged += 1
            return
        one = self._of(found.envelope.member)
        if found.breach is not None:
            one.breaches[found.breach.value] += 1
        else:
            _count(one, found, len(data))

    def _keep(self, entry: ListingEntry, data: bytes) -> None:
        if len(data) <= self._room:
            self._room -= len(data)
            self._kept[entry] = data

    def _of(self, member: str) -> MemberContribution:
        return self._ledger.members.setdefault(member, MemberContribution(self._standings[member]))

    def _stand(self, members: set[str]) -> None:
        fresh = members - self._standings.keys() - self._strangers
        if fresh:
            found = self._ask(sorted(fresh))
            self._standings |= found
            self._strangers |= fresh - found.keys()

    def _is_member(self, address: str) -> bool:
        return address in self._standings and self._standings[address].start is not None

    def _start_of(self, address: str) -> bytes:
        return self._standings[address].start or NO_START


def _count(one: MemberContribution, found: Inspected, size: int) -> None:
    rewards = [reward for group in found.groups for reward in group.offer.rewards]
    one.groups += len(found.groups)
    one.completions += len(rewards)
    one.bytes += size
    one.rewards[found.envelope.round] = round(statistics.fmean(rewards), 6)


def _before(until: float, found: Iterator[ListingEntry]) -> Iterator[ListingEntry]:
    for one in found:
        if time.monotonic() >= until:
            return
        yield one
