"""Peers' envelopes: inspected, where what can be recomputed is recomputed and nothing is believed; those that are true
are stored while their groups may be drawn, never taken twice, and bounded in memory, disk, time and number."""

import hashlib
import logging
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from pydantic import BaseModel

from environments.pool import TextEnvironments
from protocol.errors import IntegrityError, MusterError, ScoringUnavailable, UnreachableError, printable
from protocol.files import write_atomic
from storage.keys import KEY_PATTERN, MissingObjectError
from swarm.config import MixConfig
from swarm.envelope import (
    Envelope,
    MalformedEnvelope,
    SharedGroup,
    SwarmDocument,
    open_envelope,
    question_digest,
    round_problem,
)
from swarm.exchange import MOST_LISTED, PREFIX, Exchange, ListingEntry, take_turns
from swarm.plausibility import Shape
from swarm.sampling import Breach, InspectedGroup, PeerRecord, RecentUse

log = logging.getLogger("muster.swarm")
FETCHED = 64  # envelopes of a round at most
REMEMBERED_ROUNDS = 64  # an envelope that is older than its peer's newest by more rounds is not taken
LISTING_SHARE = 0.5  # time that a listing may take, as a share of the time for inspection
PEER_SHARE = 0.25  # most of the time for inspection that one peer's envelopes get
RECENT_ROUNDS = 16  # own rounds over which peers are compared, and after which a silent peer counts as departed
_KNOWN = "known.txt"
_KEY = re.compile(KEY_PATTERN)


@dataclass(frozen=True)
class Inspected:
    """An inspected envelope: its groups, all true; or none, the breach that refused it, and `where` that was."""

    envelope: Envelope
    groups: tuple[InspectedGroup, ...]
    breach: Breach | None = None
    where: str = ""


class Inspector:
    """Recomputes the groups of one swarm's envelopes; those of `members`, or with none named those of everybody."""

    def __init__(
        self, swarm: SwarmDocument, environments: TextEnvironments, members: Collection[str] = frozenset()
    ) -> None:
        self.swarm, self._environments, self._members = swarm, environments, frozenset(members)

    def reads(self, member: str) -> bool:
        """Return whether envelopes of this address count."""
        return not self._members or member in self._members

    def inspect(self, envelope: Envelope, seconds: float = math.inf) -> Inspected:
        """Recompute the problems and rewards of an opened envelope. Raise ScoringUnavailable if this machine cannot
        score now, or not within `seconds`."""
        deadline = time.monotonic() + seconds
        inspected: list[InspectedGroup] = []

        def check_time() -> None:
            if time.monotonic() >= deadline:
                raise ScoringUnavailable(f"{len(inspected)} of {len(envelope.groups)} groups took {seconds:g} s")

        for group in envelope.groups:
            result = self._inspect_group(envelope, group, check_time)
            if not isinstance(result, InspectedGroup):
                return Inspected(envelope, (), *result)  # a member that lies about one group is not read further
            inspected.append(result)
        return Inspected(envelope, tuple(inspected))

    def _inspect_group(
        self, envelope: Envelope, group: SharedGroup, check_time: Callable[[], None]
    ) -> InspectedGroup | tuple[Breach, str]:
        seed = round_problem(self.swarm.digest, envelope.member, envelope.round, group.slot)
        name = self._environments.name(seed)
        where = f"round {envelope.round}, slot {group.slot} ({name})"
        if group.question != question_digest(self._environments.problem(seed).question):
            return Breach.OTHER_PROBLEM, where
        rewards = []
        for index, completion in enumerate(group.completions):
            check_time()
            reward = self._environments.score(seed, completion.text)
            if reward != completion.reward:
                return Breach.FALSE_REWARD, f"{where}, completion {index}: {completion.reward}, it is {reward}"
            rewards.append(reward)
        return InspectedGroup(envelope.member, envelope.round, group.slot, tuple(rewards), seed, group)


class Postponed(MusterError):
    """An envelope that is inspected in a later round. Nobody is blamed."""


class InboxState(BaseModel):
    """What a member knows of its peers, which must be as old as its weights.

    - `seen`: peer → rounds whose envelope was taken → key.
    - `stored`: key → own round in which the envelope came. `used`: names of groups of these that are not drawn again.
    - `records`: peer → record. `last_true`: peer → own round of its newest true envelope, while that is recent.
    - `trained`, `doubted`: for each of the newest own rounds, the peers of the groups that it trained on or doubted.
    - `shapes`: of the newest own completions. All lists are oldest first."""

    seen: dict[str, dict[int, str]] = {}
    stored: dict[str, int] = {}
    used: set[str] = set()
    records: dict[str, PeerRecord] = {}
    last_true: dict[str, int] = {}
    trained: list[list[str]] = []
    doubted: list[list[str]] = []
    shapes: list[Shape] = []


class EnvelopeInbox:
    """The envelopes of one member's peers. `own` is the member's address; `own_found` lists its own envelopes as
    (round, key) for the caller to take. `secret` orders what is fetched first, so that nobody can push another's
    envelopes to the end. `folder` keeps envelopes over a restart, but not how fast peers advance and what time they
    got."""

    def __init__(self, inspector: Inspector, mix: MixConfig, own: str, secret: bytes, folder: Path) -> None:
        self._inspector, self._mix, self._own = inspector, mix, own
        self._secret, self._folder = secret, folder
        folder.mkdir(parents=True, exist_ok=True)
        self.state = InboxState()
        self.own_found: list[tuple[int, str]] = []
        self.groups: dict[str, InspectedGroup] = {}
        self._group_names: dict[str, list[str]] = {}  # by key
        self._known: set[str] = set()  # keys and paths that need no inspection
        self._unwritten: list[str] = []
        self._postponed: dict[str, int] = {}  # path → own round of the first attempt
        self._first: dict[str, tuple[int, int]] = {}  # peer → its round and the own round when it was first taken
        self._spent: dict[str, float] = {}  # peer → seconds of this round that inspecting its envelopes took

    # Restart

    def forget_known(self) -> None:
        """Forget which envelopes were inspected, after a checkpoint with their groups was lost."""
        (self._folder / _KNOWN).unlink(missing_ok=True)

    def restore(self, state: InboxState) -> None:
        """Continue from a checkpoint. Envelopes that the disk lost are gone."""
        self.state, self.groups, self._group_names = state, {}, {}
        known = self._folder / _KNOWN
        # A line that a kill cut off is no key, and costs a second inspection.
        written = set(known.read_text().split()) if known.is_file() else set()
        self._known = {key for rounds in state.seen.values() for key in rounds.values()} | written
        self._reopen()

    def _reopen(self) -> None:
        """Read stored envelopes that were not read since the start. One that cannot be judged now, as without a
        sandbox, is tried again in the next round, and its used groups stay used."""
        deadline = time.monotonic() + self._mix.inspection_seconds
        for key in [key for key in self.state.stored if key not in self._group_names]:
            if time.monotonic() >= deadline:
                return
            try:
                envelope = open_envelope((self._folder / key).read_bytes(), self._inspector.swarm)
                if not self._inspector.reads(envelope.member):  # any more
                    raise MalformedEnvelope(f"{envelope.member} is no member of this swarm")
                self._hold(key, self._inspector.inspect(envelope, deadline - time.monotonic()))
            except (OSError, MalformedEnvelope) as error:
                log.warning("envelope %s is lost: %s", key, error)
                del self.state.stored[key]
            except MusterError as error:
                log.info("envelope %s waits: %s", key, error)
        if all(key in self._group_names for key in self.state.stored):
            self.state.used.intersection_update(self.groups)

    def clean(self) -> None:
        """After a checkpoint was written: note on disk which keys are known, and delete envelopes that no checkpoint
        needs."""
        with (self._folder / _KNOWN).open("a") as file:
            file.writelines(f"{name}\n" for name in self._unwritten)
        self._unwritten.clear()
        for path in (self._folder / PREFIX).glob("*.json"):
            if PREFIX + path.name not in self.state.stored:
                path.unlink(missing_ok=True)

    # Collecting

    def collect(self, exchange: Exchange, number: int) -> int:
        """Take new envelopes in own round `number`; return how many were true. Raise MusterError if the exchange is
        unreachable."""
        self._expire(number)
        self._reopen()
        self._spent.clear()
        new, taken = self._new_entries(exchange, number), 0
        deadline = time.monotonic() + self._mix.inspection_seconds
        for entry in new:
            if time.monotonic() > deadline:
                log.info("inspection took %.0f s: the rest waits", self._mix.inspection_seconds)
                break
            taken += self._take(exchange, entry, number)
        return taken

    def _expire(self, number: int) -> None:
        for key in [key for key, came in self.state.stored.items() if came + self._mix.window < number]:
            del self.state.stored[key]
            for name in self._group_names.pop(key, ()):
                self.groups.pop(name, None)
                self.state.used.discard(name)
        for peer in [peer for peer, came in self.state.last_true.items() if came + RECENT_ROUNDS < number]:
            del self.state.last_true[peer]
        for path in [path for path, since in self._postponed.items() if since + self._mix.window < number]:
            log.info("envelope %s is given up: it could not be inspected for %d rounds", path, self._mix.window)
            self._know(path)

    def _new_entries(self, exchange: Exchange, number: int) -> list[ListingEntry]:
        """The entries to fetch, as many of every peer. Those that could not be inspected before come last."""

        def is_new(entry: ListingEntry) -> bool:
            return not {entry.key, entry.path} & self._known and _KEY.fullmatch(entry.key) is not None

        def rank(entry: ListingEntry) -> tuple[bool, bytes]:
            return entry.path in self._postponed, hashlib.sha256(self._secret + entry.path.encode()).digest()

        def order(peer: str) -> bytes:
            return hashlib.sha256(self._secret + number.to_bytes(8, "big") + peer.encode()).digest()

        listed = _within(exchange.listed(), LISTING_SHARE * self._mix.inspection_seconds)
        return take_turns(islice(filter(is_new, listed), MOST_LISTED), FETCHED, rank, order)

    def _take(self, exchange: Exchange, entry: ListingEntry, number: int) -> int:
        """Fetch, inspect and store one envelope; return 1 if it was new and true."""
        key, path = entry.key, entry.path
        try:
            data = exchange.get(entry, self._inspector.swarm.envelope_bytes)
            envelope = open_envelope(data, self._inspector.swarm)
            peer = envelope.member
            if entry.peer not in ("", peer.lower()):  # which would have had its turn
                raise MalformedEnvelope(f"it is {peer}'s, and lies below {entry.peer}")
            result = self._inspect(envelope, number) if self._is_fresh(envelope, key) else None
        except (MalformedEnvelope, IntegrityError, MissingObjectError) as error:
            # Only this path: anybody who may write can put a wrong copy of what is right elsewhere.
            self._know(path)
            log.info("envelope %s is refused: %s", path, printable(str(error)))
            return 0
        except UnreachableError:
            self._postponed.setdefault(path, number)
            raise
        except MusterError as error:
            # Only this object: anybody who may write there must not cut a member off from the others.
            self._postponed.setdefault(path, number)
            log.warning("envelope %s cannot be inspected now: %s", path, printable(str(error)))
            return 0
        if result is not None and result.breach is None:
            write_atomic(self._folder / key, data)  # first: what the disk has no room for comes again
        self._postponed.pop(path, None)
        self._know(key)
        if result is None:
            return 0
        rounds = self.state.seen.setdefault(peer, {})
        rounds[envelope.round] = key
        newest = max(rounds)
        for old in [round_number for round_number in rounds if round_number <= newest - REMEMBERED_ROUNDS]:
            del rounds[old]
        self._first.setdefault(peer, (envelope.round, number))
        if result.breach is not None:
            self._blame(peer, result.breach, result.where)
            return 0
        self.state.stored[key] = self.state.last_true[peer] = number
        self._count(peer, true=len(result.groups))
        self._hold(key, result)
        return 1

    def _inspect(self, envelope: Envelope, number: int) -> Inspected:
        """Score an envelope. Raise Postponed if the peer advanced too fast, which lets it pick its problems, or had its
        part of the round's time; ScoringUnavailable."""
        peer = envelope.member
        first, since = self._first.get(peer, (envelope.round, number))
        if envelope.round > first + self._mix.rounds_ahead * (number - since + 1):
            raise Postponed(f"round {envelope.round} of {peer} comes too early: it was first at {first}")
        left = PEER_SHARE * self._mix.inspection_seconds - self._spent.get(peer, 0.0)
        if left <= 0:
            raise Postponed(f"{peer} had its part of this round's time")
        began = time.monotonic()
        try:
            return self._inspector.inspect(envelope, left)
        finally:
            self._spent[peer] = self._spent.get(peer, 0.0) + time.monotonic() - began

    def _is_fresh(self, envelope: Envelope, key: str) -> bool:
        """Whether the envelope is of a peer that is read, the first of its round, and not too old. Blames a peer for a
        second one, whatever it contains."""
        peer = envelope.member
        if peer == self._own:
            self.own_found.append((envelope.round, key))
            return False
        if not self._inspector.reads(peer):
            log.info("envelope %s is not read: %s is no member of this swarm", key, peer)
            return False
        rounds = self.state.seen.get(peer, {})
        before = rounds.get(envelope.round)
        if before is not None:
            if before != key:
                self._blame(peer, Breach.TWO_ENVELOPES, f"round {envelope.round}")
            return False
        return envelope.round > max(rounds, default=0) - REMEMBERED_ROUNDS

    def _hold(self, key: str, result: Inspected) -> None:
        self._group_names[key] = [group.name for group in result.groups]
        self.groups.update({group.name: group for group in result.groups})

    def _know(self, name: str) -> None:
        """Never fetch a content address, or one path, again."""
        self._postponed.pop(name, None)
        self._known.add(name)
        self._unwritten.append(name)

    # What was drawn

    def unused(self) -> list[InspectedGroup]:
        """Return the groups that may be drawn."""
        return [group for name, group in self.groups.items() if name not in self.state.used]

    @property
    def active_peers(self) -> int:
        """How many peers shared something true recently and never made a false statement."""
        records = self.state.records
        return sum(peer not in records or not records[peer].breaches for peer in self.state.last_true)

    def recent_use(self) -> dict[str, RecentUse]:
        """Return how often the newest own rounds trained on each peer's groups or doubted them."""
        trained, doubted = (
            Counter(peer for peers in rounds for peer in peers) for rounds in (self.state.trained, self.state.doubted)
        )
        return {peer: RecentUse(trained[peer], doubted[peer]) for peer in trained | doubted}

    def use(self, trained: list[str], unfit: list[str], doubted: list[str]) -> None:
        """Record the outcome of a draw by group names. None of these groups is drawn again."""
        self.state.used.update(trained, unfit, doubted)
        peers = {name: self.groups[name].peer for name in (*trained, *unfit, *doubted)}
        self.state.trained = [*self.state.trained, [peers[name] for name in trained]][-RECENT_ROUNDS:]
        self.state.doubted = [*self.state.doubted, [peers[name] for name in doubted]][-RECENT_ROUNDS:]
        for kind, names in {"trained": trained, "unfit": unfit, "doubted": doubted}.items():
            for name in names:
                self._count(peers[name], **{kind: 1})

    def _blame(self, peer: str, breach: Breach, where: str) -> None:
        log.warning("%s made a false statement: %s, %s", peer, breach.value, where)
        self._count(peer, breaches=1)

    def _count(self, peer: str, **counts: int) -> None:
        record = self.state.records.setdefault(peer, PeerRecord())
        for kind, count in counts.items():
            setattr(record, kind, getattr(record, kind) + count)


def _within(listed: Iterator[ListingEntry], seconds: float) -> Iterator[ListingEntry]:
    """Yield what comes within `seconds` of the first entry; the exchange bounds the wait for the first."""
    until = math.inf
    for entry in listed:
        yield entry
        now = time.monotonic()
        if now >= until:
            log.info("the listing took longer than %.0f s: the rest is left out", seconds)
            return
        until = min(until, now + seconds)
