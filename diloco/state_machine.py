"""Who takes part in which outer step: a pure function of the log's events.

An outer step is collected (members sign hashes of their contributions), opened (they publish the payloads), and
settled: it follows which contributions count, and the step is committed. A step that cannot be made begins again with
another attempt. So none is lost or made twice, and replicas that apply the same events agree."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from diloco import messages
from diloco.config import DilocoRun
from diloco.inner import Partition
from protocol.errors import IntegrityError


class Phase(Enum):
    COLLECT = "collect"
    OPEN = "open"
    SETTLE = "settle"


@dataclass(frozen=True)
class Schedule:
    """The outer step under way: `step` starts from the state of `digest` (hex). `members` take part in attempt
    `attempt`; `waiting` have joined and take part from the next attempt that lets them in. `documents`: signed
    contributions by worker; `opened`: workers whose payload is there. `barred`: workers that held up this step;
    `disputed`: those of them that did so only by their word on files. `items`: the files that the step trains on, once
    assigned; `unusable`: files that barred workers named; `skipped`: files that nobody trains on; `partition_members`:
    the members when the attempt began, among whom the data is split."""

    run: DilocoRun
    digest: str
    step: int = 0
    attempt: int = 0
    phase: Phase = Phase.COLLECT
    members: frozenset[str] = frozenset()
    waiting: frozenset[str] = frozenset()
    documents: Mapping[str, str] = field(default_factory=dict)
    opened: frozenset[str] = frozenset()
    barred: frozenset[str] = frozenset()
    disputed: frozenset[str] = frozenset()
    strikes: Mapping[str, messages.Strikes] = field(default_factory=dict)
    items: tuple[str, ...] | None = None
    unusable: frozenset[str] = frozenset()
    skipped: frozenset[str] = frozenset()
    partition_members: tuple[str, ...] = ()

    @classmethod
    def begin(cls, commit: messages.CommitRecord, run: DilocoRun) -> "Schedule":
        """Return the schedule that a commit record begins. Raises IntegrityError where it names no worker of the
        run."""
        run.check_workers([*commit.members, *commit.waiting, *commit.made_of])
        return cls(
            run, commit.digest, commit.step, members=frozenset(commit.members), waiting=frozenset(commit.waiting),
            strikes=commit.strikes, partition_members=tuple(sorted(commit.members)),
        )  # fmt: skip

    @property
    def quorum(self) -> int:
        """Members without which no attempt begins."""
        return self.run.settings.admission.minimum

    @property
    def position(self) -> tuple[int, int, Phase]:
        return self.step, self.attempt, self.phase

    @property
    def contributors(self) -> dict[str, str]:
        """The documents of those who opened: what the step is to be settled from."""
        return {worker: self.documents[worker] for worker in sorted(self.opened)}

    @property
    def backing_off(self) -> frozenset[str]:
        """Workers that are excluded from this step because of earlier ones."""
        return frozenset(worker for worker, strikes in self.strikes.items() if strikes.until > self.step)

    @property
    def excluded(self) -> frozenset[str]:
        """Workers that no other attempt at this step lets in, unless too few others are left."""
        return self.barred | self.backing_off

    @property
    def entering(self) -> frozenset[str]:
        """Workers that the next attempt would let in."""
        return self.waiting - self.excluded

    @property
    def awaits_files(self) -> bool:
        """Whether the coordinator has yet to assign the files that the step trains on."""
        return self.run.assigned and self.items is None

    @property
    def partition(self) -> Partition | None:
        """How the files of this attempt are split; None while there are none."""
        if self.items is None:
            return None
        left = tuple(item for item in self.items if item not in self.skipped)
        return Partition(self.run.seed, left, self.partition_members)

    def share_of(self, worker: str) -> tuple[str, ...]:
        """Return what decides a worker's data in this attempt: work on data that was split otherwise is of no use."""
        return self.partition_members + (self.partition.of(worker) if self.partition else ())

    def after(self, event: messages.LogEvent) -> "Schedule":
        """Return the schedule after an event; the same object where it changes nothing. Raises IntegrityError for an
        event that no honest coordinator writes."""
        updated = self._after(event)
        if updated is self or isinstance(event, messages.CommitRecord):
            return updated
        if updated.unusable and not updated.barred:  # all were let in again: nobody is left who could use these
            updated = replace(updated, skipped=updated.skipped | updated.unusable, unusable=frozenset())
        if updated.attempt != self.attempt:
            updated = replace(updated, partition_members=tuple(sorted(updated.members)))
        too_few_files = updated.partition is not None and len(updated.partition.items) < self.quorum
        if too_few_files and updated.phase == Phase.COLLECT:  # the step will change nothing
            updated = replace(updated, phase=Phase.SETTLE, documents={})
        return updated

    def _after(self, event: messages.LogEvent) -> "Schedule":
        match event:
            case messages.Joined():
                return self._joined(event)
            case messages.Left():
                return self._left(event.worker)
            case messages.FilesAssigned():
                return self._assigned(event)
            case messages.ContributionSigned():
                return self._signed(event)
            case messages.ContributionRefused() if event.worker in self.documents:
                raise IntegrityError(f"the log refuses a contribution of {event.worker}, which signed another")
            case messages.ContributionRefused():
                return self._held_up(event.worker)
            case messages.FilesUnusable():
                if not set(event.items) <= set(self.share_of(event.worker)):
                    raise IntegrityError(f"{event.worker} names files that are not assigned to it")
                unusable, disputed = self.unusable.union(event.items), self.disputed | {event.worker}
                named = replace(self, unusable=unusable, disputed=disputed)
                updated = named._held_up(event.worker)
                return self if updated is named else updated
            case messages.PayloadOpened():
                fits = self.phase == Phase.OPEN and self.documents.get(event.worker) == event.document
                new = fits and event.worker not in self.opened
                return replace(self, opened=self.opened | {event.worker})._advance() if new else self
            case messages.PhaseFailed():
                due = (event.attempt, event.phase) == (self.attempt, self.phase.value)
                return self._failed() if due else self
            case messages.CommitRecord():
                due = event.attempt == self.attempt and self.phase == Phase.SETTLE
                return self._committed(event.digest) if due else self

    def commit(
        self, digest: str, counted: Collection[str], previous: int, unread: Mapping[str, int], state: str | None
    ) -> messages.CommitRecord:
        """Return the commit record that settles the attempt under way into the state of `digest`. `counted`: workers
        whose contributions were admitted; `previous`: number of the newest commit record; `messages`: first unread
        message of each worker; `state`: SHA-256 of the published state's list, if any."""
        after = self._committed(digest)
        return messages.CommitRecord(
            step=after.step, digest=digest, attempt=self.attempt, members=sorted(after.members),
            waiting=sorted(after.waiting), made_of=self.contributors, counted=sorted(counted), previous=previous,
            state=state, messages={worker: number for worker, number in unread.items() if number},
            strikes=dict(after.strikes),
        )  # fmt: skip

    def _joined(self, event: messages.Joined) -> "Schedule":
        self.run.check_workers([event.worker])
        if event.worker in self.members | self.waiting or event.digest != self.digest:
            return self
        joined = replace(self, waiting=self.waiting | {event.worker})
        under_way = self.members or self.phase != Phase.COLLECT
        return joined if under_way or len(joined.waiting) < self.quorum else joined._next_attempt()

    def _left(self, worker: str) -> "Schedule":
        """What it has opened still counts: the work is done."""
        if worker not in self.members | self.waiting:
            return self
        rest = replace(self, members=self.members - {worker}, waiting=self.waiting - {worker})
        if worker not in self.opened:
            rest = replace(rest, documents=_without(self.documents, {worker}))
            if self.run.assigned and worker in self.members:  # its files must be split again
                owes = self.partition is not None and bool(self.partition.of(worker))
                return (rest._bar({worker}) if owes else rest)._next_attempt()
        return rest._advance()

    def _assigned(self, event: messages.FilesAssigned) -> "Schedule":
        """Whoever has joined by now takes part."""
        if self.items is not None or event.step != self.step:
            raise IntegrityError(f"the log assigns files to outer step {event.step} out of turn")
        assigned = replace(self, items=tuple(event.items))
        return assigned._next_attempt() if self.entering and not self.documents else assigned

    def _signed(self, event: messages.ContributionSigned) -> "Schedule":
        if self.awaits_files:
            raise IntegrityError(f"{event.worker} signed before the files of outer step {self.step} are assigned")
        if event.worker not in self.members - self.barred:
            return self
        known = self.documents.get(event.worker)
        if known is None and self.phase == Phase.COLLECT:
            return replace(self, documents={**self.documents, event.worker: event.document})._advance()
        if known in (None, event.document) or self.phase == Phase.SETTLE:
            return self
        return self._bar({event.worker})._without_barred()  # equivocation: it signed two contributions

    def _held_up(self, worker: str) -> "Schedule":
        due = self.phase == Phase.COLLECT and worker in self.members - self.barred
        return self._bar({worker})._without_barred() if due else self

    def _failed(self) -> "Schedule":
        if self.phase == Phase.SETTLE:
            return self._next_attempt()
        arrived = frozenset(self.documents) if self.phase == Phase.COLLECT else self.opened
        expected = self.members - self.barred if self.phase == Phase.COLLECT else frozenset(self.documents)
        # A silent worker counts as dead: one that is alive joins again.
        rest = replace(self._bar(expected - arrived), members=self.members & arrived)
        if not arrived or (self.run.assigned and expected - arrived):
            return rest._next_attempt()
        return replace(rest, phase=Phase.OPEN if self.phase == Phase.COLLECT else Phase.SETTLE)

    def _committed(self, digest: str) -> "Schedule":
        strikes = {w: tally.contributed() if w in self.opened else tally for w, tally in self.strikes.items()}
        for worker in self.barred:
            strikes[worker] = self.strikes.get(worker, messages.Strikes()).held_up(self.step, worker in self.disputed)
        over = Schedule(
            self.run, digest, self.step + 1, members=self.members - self.barred, waiting=self.waiting,
            strikes={worker: tally for worker, tally in strikes.items() if tally.count},
        )  # fmt: skip
        begun = over._next_attempt()
        return replace(begun, attempt=0, partition_members=tuple(sorted(begun.members)))

    def _bar(self, workers: Collection[str]) -> "Schedule":
        """Exclude workers from this outer step, with what they handed in."""
        documents = _without(self.documents, workers)
        return replace(
            self, documents=documents, opened=self.opened.difference(workers), barred=self.barred.union(workers)
        )

    def _without_barred(self) -> "Schedule":
        """Continue after a member was barred: assigned files are split again among the others."""
        return self._next_attempt() if self.run.assigned else self._advance()

    def _advance(self) -> "Schedule":
        """Leave a phase in which nobody is waited for any longer."""
        if self.phase == Phase.COLLECT:
            if not self.documents and not self.members:
                return self._next_attempt()
            complete = bool(self.documents) and self.members - self.barred <= self.documents.keys()
            return replace(self, phase=Phase.OPEN) if complete else self
        if self.phase == Phase.OPEN and self.opened >= self.documents.keys():
            return replace(self, phase=Phase.SETTLE) if self.opened else self._next_attempt()
        return self

    def _next_attempt(self) -> "Schedule":
        """Begin the outer step again, with the members and those who wait. Excluded workers wait until they may come
        back, or until too few others are left."""
        fresh = Schedule(
            self.run, self.digest, self.step, self.attempt + 1, strikes=self.strikes, items=self.items,
            unusable=self.unusable, skipped=self.skipped, partition_members=self.partition_members,
        )  # fmt: skip
        left = (self.members | self.waiting) - self.excluded
        if len(left) >= self.quorum:
            staying = (self.waiting | self.members - self.barred) & self.excluded
            return replace(fresh, members=left, waiting=staying, barred=self.barred, disputed=self.disputed)
        everyone = (self.members - self.barred) | self.waiting
        return replace(fresh, members=everyone) if len(everyone) >= self.quorum else replace(fresh, waiting=everyone)


def _without(documents: Mapping[str, str], workers: Collection[str]) -> dict[str, str]:
    return {worker: document for worker, document in documents.items() if worker not in workers}
