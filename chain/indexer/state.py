"""The state of the whole suite, projected from events alone: the view that every role shares.

Submissions, lanes and mirrors that cannot change any more leave memory for the archive. Asked for by key they are there
all the same; iteration yields open ones only, `submissions_of` and `lanes_of` all. `chain.indexer.reducers` fills the
state, `chain.indexer.projection` keeps it up to date with the chain.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, islice
from typing import Any, TypeVar

from chain.indexer import records
from chain.indexer.store import Archive, FileKey
from protocol.encoding import keccak
from protocol.errors import ConfigError

V = TypeVar("V")


class Records(dict[FileKey, V]):
    """Open records by pool and number; those that `archived` finds are there as well, but not when iterating."""

    def __init__(self, open_records: dict[FileKey, V], archived: Callable[[FileKey], V | None]) -> None:
        super().__init__(open_records)
        self.archived = archived

    def __missing__(self, key: FileKey) -> V:
        record = self.archived(key)
        if record is None:
            raise KeyError(key)
        return record

    def __copy__(self) -> "Records[V]":
        return Records(self, self.archived)

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or self.get(key) is not None

    def get(self, key: Any, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default


@dataclass
class State:
    """Tables of records by what names them; pools, nodes, lanes, files and addresses as in `chain.indexer.records`.
    `version`, `generation`: see `chain.indexer.projection`."""

    head: int = 0  # the block up to which events are applied
    time: int = 0  # of the newest event
    version: int = field(default=0, compare=False)
    generation: int = field(default=0, compare=False)
    archive: Archive = field(default_factory=Archive, compare=False, repr=False)
    pools: dict[int, records.Pool] = field(default_factory=dict)
    accounts: dict[tuple[int, str], records.Account] = field(default_factory=dict)
    submissions: dict[FileKey, records.Submission] = field(default_factory=dict)
    lanes: dict[FileKey, records.Lane] = field(default_factory=dict)
    mirrors: dict[FileKey, records.Mirrors] = field(default_factory=dict)
    nodes: dict[str, records.Node] = field(default_factory=dict)
    seats: dict[int, records.Seat] = field(default_factory=dict)
    trials: dict[int, records.Trial] = field(default_factory=dict)
    disputes: dict[FileKey, records.Dispute] = field(default_factory=dict)
    canaries: dict[FileKey, records.Canary] = field(default_factory=dict)
    challenges: dict[int, records.NodeChallenge] = field(default_factory=dict)
    trial_challenges: dict[int, int] = field(default_factory=dict)
    slashes: list[records.Slash] = field(default_factory=list)  # in chain order
    payments: list[records.Payment] = field(default_factory=list)  # those after the archived ones
    archived_payments: int = 0
    paid: dict[tuple[str, str, int], int] = field(default_factory=dict)  # sums of all, by kind, receiver and pool
    pending_slashes: dict[str, tuple[int, int]] = field(default_factory=dict)
    balances: dict[str, int] = field(default_factory=dict)  # tokens held
    transfers: dict[tuple[str, str], int] = field(default_factory=dict)  # tokens ever moved, by sender and receiver
    params: dict[str, int] = field(default_factory=dict)  # penalties, by the names of Params.Values
    paused_until: int = 0
    proposals: dict[str, records.Proposal] = field(default_factory=dict)
    roles: dict[str, tuple[str, ...]] = field(default_factory=dict)  # who holds a role at the timelock

    def usable_step(self, pool: int, confirmations: int) -> int | None:
        """Return the pool's newest policy step whose seed block has that many blocks on top."""
        steps = self.pools[pool].steps if pool in self.pools else []
        deep = (step.step for step in reversed(steps) if step.seed_block + confirmations <= self.head)
        return next(deep, None)

    def has_part(self, pool: int, address: str) -> bool:
        """Return whether an address is a pool's owner, a node that ever joined, or a seat's voter or owner."""
        if (pool, address) in self.accounts or (pool in self.pools and self.pools[pool].owner == address):
            return True
        return any(address in (seat.voter, seat.owner) and not seat.closed for seat in self.seats.values())

    def submissions_of(self, pool: int, node: str | None = None) -> list[records.Submission]:
        """Return all files in order of their sequence; of one node, or of all."""
        holder = self.pools.get(pool) if node is None else self.accounts.get((pool, node))
        return [self.submissions[pool, sequence] for sequence in (holder.sequences if holder else ())]

    def files_since(self, pool: int, step: int) -> Iterator[records.Submission]:
        """Yield the files that were submitted after policy step `step` was published, newest first."""
        steps, sequences = (self.pools[pool].steps, self.pools[pool].sequences) if pool in self.pools else ([], [])
        since = steps[step].block if 0 <= step < len(steps) else 0
        for sequence in reversed(sequences):
            sub = self.submissions[pool, sequence]
            if sub.block < since:
                return
            yield sub

    def lanes_of(self, pool: int) -> list[records.Lane]:
        """Return all lanes of a pool in their order."""
        sequences = self.pools[pool].sequences if pool in self.pools else ()
        return [self.lanes[pool, lane] for lane in dict.fromkeys(sequence >> 4 for sequence in sequences)]

    def all_payments(self) -> Iterator[records.Payment]:
        """Yield every payment in chain order."""
        return chain(islice(self.archive.payments(), self.archived_payments), self.payments)

    def challenge_of(self, trial: int) -> records.NodeChallenge | None:
        """Return the node challenge that a jury judges or judged."""
        number = self.trial_challenges.get(trial)
        return None if number is None else self.challenges[number]

    def lane_of(self, submission: records.Submission) -> records.Lane:
        return self.lanes[submission.pool, submission.lane]

    def files_of(self, lane: records.Lane) -> list[records.Submission]:
        """Return the lane's submissions in order of their places."""
        return [self.submissions[lane.pool, sequence] for sequence in lane.sequences]

    def mirrors_of(self, submission: records.Submission) -> tuple[str, ...]:
        """URLs that were announced for its bytes."""
        known = self.mirrors.get((submission.pool, submission.sequence))
        return known.urls if known else ()

    def seats_of_voter(self, voter: str) -> list[records.Seat]:
        return [seat for seat in self.seats.values() if seat.voter == voter and not seat.closed]

    def accepted(self, pool: int) -> list[records.Submission]:
        """Submissions whose outcome is an acceptance now, by sequence."""
        return [sub for sub in self.submissions_of(pool) if sub.status == records.Status.ACCEPTED]

    def claim_hint(self, pool: int, node: str, now: int) -> records.Submission | None:
        """Return the submission to name in `claim`, so that all that vested by `now` (chain time) is paid.

        None if nothing would be."""
        account = self.accounts.get((pool, node))
        if account is None:
            return None
        here = (dict.get(self.submissions, (pool, sequence)) for sequence in account.sequences.kept)
        files = [file for file in here if file is not None]
        if account.archived_hint >= 0:
            files.append(self.submissions[pool, account.archived_hint])
        end = min(now, account.barrier or now)
        vested = [file for file in files if file.cumulative > account.units_spent and file.final_time <= end]
        return max(vested, key=lambda file: file.cumulative, default=None)

    def claimable_units(self, pool: int, node: str, now: int) -> int:
        """Output tokens that a claim by the node would pay at chain time `now`."""
        hint = self.claim_hint(pool, node, now)
        return hint.cumulative - self.accounts[pool, node].units_spent if hint else 0


class Standing(StrEnum):
    """A node's standing in a pool; only a MEMBER may make and submit files. FROZEN ends by itself when its rejected
    file is final, EJECTED and REMOVED are for good."""

    MEMBER = "member"
    NOT_JOINED = "not joined"
    LEFT = "left"
    FROZEN = "frozen"
    REMOVED = "removed"
    EJECTED = "ejected"


def standing_of(account: records.Account | None) -> Standing:
    """Return the standing of a node by its account in the pool, None where it never joined."""
    if account is None:
        return Standing.NOT_JOINED
    if account.ejected:
        return Standing.EJECTED
    if account.removed:
        return Standing.REMOVED
    if not account.member:
        return Standing.LEFT
    return Standing.FROZEN if account.frozen_at else Standing.MEMBER


# Validator groups


FIRST_SHARED_GROUP = 1 << 24  # Groups below are single pools; docs/reference/contracts.md
_NAME = re.compile(r"[a-z0-9][a-z0-9._/-]{0,63}")


def group_number(name: str) -> int:
    """Return the number of a shared validator group from its name or number. Raise ConfigError."""
    if name.isdecimal():
        if FIRST_SHARED_GROUP <= int(name) < 1 << 32:
            return int(name)
        raise ConfigError(f"{name} is not the number of a group", f"those are {FIRST_SHARED_GROUP} to {(1 << 32) - 1}")
    if not _NAME.fullmatch(name):
        hint = "write lower-case letters, digits, `.`, `_`, `-`, `/`"
        raise ConfigError(f"{name!r} is not the name of a group", hint)
    return int.from_bytes(keccak(name.encode())[-4:]) | 1 << 31


def describe(validator_group: int) -> str:
    """Return a validator group in words."""
    return f"pool {validator_group}" if validator_group < FIRST_SHARED_GROUP else f"group {validator_group}"


def needed(terms: records.Terms) -> int:
    """Seats that a pool's group must have: two committees and both juries, or two first juries, all disjoint."""
    return max(2 * terms.committee + terms.jury + terms.appealJury, 2 * terms.jury)


def seats_in(state: State, pool: records.Pool) -> list[records.Seat]:
    """Return the seats that judge a pool, from the next epoch on at the latest."""
    return [seat for seat in state.seats.values() if seat.active and pool.validator_group in seat.groups]
