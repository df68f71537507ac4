"""Who takes part in which outer step: a pure machine that follows one log of events.

An outer step is collected (members sign hashes of what they have), opened (they publish the payloads), and settled:
what counts is decided and applied. Where members reduce shards, they tell in between what their shards add to
admission, then their means, and each says that it has all. Only a settlement ends it, whatever is repeated, late or out
of place; a settlement that cannot be made, or that nobody is left for, begins it again. So no outer step is lost, and
none is made twice.

Who writes the log is not this file's matter: replicas of one log agree.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from trainer.sites.events import (
    Event,
    HashesSigned,
    NothingLeft,
    OuterPhase,
    PartsTold,
    PartWrong,
    PayloadOpened,
    PhaseTimeUp,
    SiteJoined,
    SiteLeft,
    SitePutOut,
    StepSettled,
    WorkDealt,
)
from trainer.sites.exclusion import Marks, after_step


@dataclass(frozen=True)
class Schedule:
    """`step`: the outer step under way, from the state of `digest`. `waiting`: who has joined and is a member from the
    next boundary on. `documents`: of whom signed; `opened`: of these, whose payload is there. `barred`: who held this
    outer step up (trainer/sites/exclusion.py) and has no part in it any more, unless too few others are left;
    `disputed`: those of them who did so by no more than their word on files. `marks`: of those who held up earlier
    ones. `quorum`: as many must have joined before a step begins that nobody is left for. `whole`: a step is made of
    the work of all its members or begins again among those who are left, because each of them has a part of what is to
    be trained on. `reducing`: whether members reduce shards; `reducers`: who does in this attempt; `products`, `means`:
    their documents; `checked`: the states that members come to by all means; `liars`: who was shown to have reduced a
    shard of this outer step wrongly, and reduces no more of it."""

    digest: bytes
    step: int = 0
    attempt: int = 0
    phase: OuterPhase = OuterPhase.COLLECT
    members: frozenset[str] = frozenset()
    waiting: frozenset[str] = frozenset()
    documents: Mapping[str, str] = field(default_factory=dict)
    opened: frozenset[str] = frozenset()
    barred: frozenset[str] = frozenset()
    disputed: frozenset[str] = frozenset()
    marks: Marks = field(default_factory=dict)
    quorum: int = 1
    whole: bool = False
    reducing: bool = False
    reducers: frozenset[str] = frozenset()
    products: Mapping[str, str] = field(default_factory=dict)
    means: Mapping[str, str] = field(default_factory=dict)
    checked: Mapping[str, str] = field(default_factory=dict)
    liars: frozenset[str] = frozenset()

    @property
    def contributors(self) -> Mapping[str, str]:
        """What is to be settled: the documents of those who opened."""
        return {site: self.documents[site] for site in sorted(self.opened)}

    @property
    def left_out(self) -> frozenset[str]:
        """Who has no part in this outer step because of earlier ones, unless too few others are left."""
        return frozenset(site for site, one in self.marks.items() if one.until > self.step)

    @property
    def shut_out(self) -> frozenset[str]:
        """Who is let into no other attempt at this outer step, unless too few others are left."""
        return self.barred | self.left_out

    @property
    def entering(self) -> frozenset[str]:
        """Who takes part in the next attempt, if there is one, and not in this one."""
        return self.waiting - self.shut_out

    @property
    def told(self) -> Mapping[str, str]:
        """By whom the part of this phase was told, where it has any."""
        parts = {OuterPhase.PRODUCTS: self.products, OuterPhase.MEANS: self.means, OuterPhase.CHECK: self.checked}
        return parts.get(self.phase, {})

    @property
    def untold(self) -> frozenset[str]:
        """Whose part of this phase is waited for."""
        if self.phase == OuterPhase.CHECK:
            return self.members - self.barred - self.checked.keys()
        return (
            self.reducers - self.told.keys() if self.phase in (OuterPhase.PRODUCTS, OuterPhase.MEANS) else frozenset()
        )

    def after(self, event: Event) -> "Schedule":
        """The same object where the event changes nothing: it is a repetition, too late, or nobody's who may."""
        if isinstance(event, SiteJoined):
            return self._joined(event)
        if isinstance(event, SiteLeft):
            return self._left(event)
        if isinstance(event, WorkDealt):
            return self._begun() if self.entering and event.step == self.step and not self.documents else self
        if isinstance(event, SitePutOut):
            return self._put_out(event)
        if isinstance(event, NothingLeft):
            collecting = event.step == self.step and self.phase == OuterPhase.COLLECT
            return replace(self, phase=OuterPhase.SETTLE, documents={}) if collecting else self
        if isinstance(event, HashesSigned):
            return self._committed(event)
        if isinstance(event, PayloadOpened):
            return self._opened(event)
        if isinstance(event, PartsTold):
            return self._told(event)
        if isinstance(event, PartWrong):
            return self._wrong(event)
        return self._timed(event) if isinstance(event, PhaseTimeUp) else self._settled(event)

    def after_boundary(self, digest: bytes) -> "Schedule":
        """What a settlement of the attempt under way leads to."""
        return self.after(StepSettled(self.step, self.attempt, digest))

    def _joined(self, event: SiteJoined) -> "Schedule":
        if event.site in self.members | self.waiting or event.digest != self.digest:
            return self
        made = replace(self, waiting=self.waiting | {event.site})
        begun = self.members or self.phase != OuterPhase.COLLECT
        return made if begun or len(made.waiting) < self.quorum else made._begun()

    def _left(self, event: SiteLeft) -> "Schedule":
        """What it has opened still counts: the work is done."""
        site = event.site
        if site not in self.members | self.waiting:
            return self
        made = replace(self, members=self.members - {site}, waiting=self.waiting - {site})
        if site not in self.opened:
            made = replace(made, documents=_without(self.documents, {site}))
            if self.whole and site in self.members:
                return (made._barring({site}) if event.owing else made)._begun()
        mean_due = self.phase == OuterPhase.PRODUCTS  # whether or not its products are told
        if site in self.reducers and (mean_due or site in self.untold):
            return made._barring({site})._begun()
        return made._moved_on()

    def _put_out(self, event: SitePutOut) -> "Schedule":
        if self.phase != OuterPhase.COLLECT or event.site not in self.members - self.barred:
            return self
        made = self._barring({event.site})
        if event.disputed:
            made = replace(made, disputed=made.disputed | {event.site})
        return made._begun() if self.whole else made._moved_on()

    def _committed(self, event: HashesSigned) -> "Schedule":
        if (event.step, event.base) != (self.step, self.digest) or event.site not in self.members - self.barred:
            return self
        known = self.documents.get(event.site)
        if known is None and self.phase == OuterPhase.COLLECT:
            return replace(self, documents={**self.documents, event.site: event.document})._moved_on()
        if known in (None, event.document) or self.phase == OuterPhase.SETTLE:
            return self
        made = self._barring({event.site})
        return made._begun() if self.whole or self.reducers else made._moved_on()

    def _opened(self, event: PayloadOpened) -> "Schedule":
        fits = event.step == self.step and self.documents.get(event.site) == event.document
        if self.phase != OuterPhase.OPEN or not fits or event.site in self.opened:
            return self
        return replace(self, opened=self.opened | {event.site})._moved_on()

    def _told(self, event: PartsTold) -> "Schedule":
        if (event.step, event.attempt, event.phase) != (self.step, self.attempt, self.phase):
            return self
        new = {site: document for site, document in event.documents.items() if site in self.untold}
        if not new:
            return self
        told = {**self.told, **new}
        if self.phase == OuterPhase.PRODUCTS:
            return replace(self, products=told)._moved_on()
        if self.phase == OuterPhase.MEANS:
            return replace(self, means=told)._moved_on()
        return replace(self, checked=told)._moved_on()

    def _wrong(self, event: PartWrong) -> "Schedule":
        if not self.reducers or event.site not in self.opened:
            return self
        made = self._barring({event.site})
        return replace(made, liars=made.liars | {event.site} if event.lied else made.liars)._begun()

    def _timed(self, event: PhaseTimeUp) -> "Schedule":
        if (event.step, event.attempt, event.phase) != (self.step, self.attempt, self.phase):
            return self
        if self.phase == OuterPhase.SETTLE:
            return self._begun()
        if self.reducers:
            return self._silent_reducers()
        arrived = frozenset(self.documents) if self.phase == OuterPhase.COLLECT else self.opened
        expected = self.members - self.barred if self.phase == OuterPhase.COLLECT else frozenset(self.documents)
        # Silence is death: who is alive joins again.
        made = replace(self._barring(expected - arrived), members=self.members & arrived)
        if not arrived or (self.whole and expected - arrived):
            return made._begun()
        if self.phase == OuterPhase.COLLECT:
            return replace(made, phase=OuterPhase.OPEN)
        return replace(made, documents={site: self.documents[site] for site in arrived})._after_opening()

    def _silent_reducers(self) -> "Schedule":
        """A part that is missing begins the attempt again among the others; once all have their parts told, the step
        can be made without those who do not say that they have them."""
        silent = self.untold
        if self.phase == OuterPhase.CHECK:
            return replace(self, members=self.members - silent, barred=self.barred | silent, phase=OuterPhase.SETTLE)
        return replace(self._barring(silent), members=self.members - silent)._begun()

    def _settled(self, event: StepSettled) -> "Schedule":
        due = (
            (OuterPhase.SETTLE,) if event.after is not None else (OuterPhase.MEANS, OuterPhase.CHECK, OuterPhase.SETTLE)
        )
        if (event.step, event.attempt) != (self.step, self.attempt) or self.phase not in due:
            return self
        if event.after is None:
            return self._begun()
        marks = after_step(self.marks, self.step, self.barred, self.disputed, self.opened, self.liars)
        over = replace(
            self, digest=event.after, step=self.step + 1, members=self.members - self.barred, barred=frozenset(),
            disputed=frozenset(), marks=marks, liars=frozenset(),
        )  # fmt: skip
        return replace(over._begun(), attempt=0)

    def _barring(self, sites: Collection[str]) -> "Schedule":
        """Without what they handed in, and without them for the rest of this outer step."""
        documents = _without(self.documents, sites)
        return replace(self, documents=documents, opened=self.opened.difference(sites), barred=self.barred.union(sites))

    def _moved_on(self) -> "Schedule":
        """Past a phase in which nobody is waited for any more."""
        if self.phase == OuterPhase.COLLECT:
            if not self.documents and not self.members:
                return self._begun()
            done = bool(self.documents) and self.members - self.barred <= self.documents.keys()
            return replace(self, phase=OuterPhase.OPEN) if done else self
        if self.phase == OuterPhase.OPEN and self.opened >= self.documents.keys():
            return self._after_opening() if self.opened else self._begun()
        if self.reducers and self.phase != OuterPhase.SETTLE and not self.untold:
            return replace(self, phase=_NEXT[self.phase])
        return self

    def _after_opening(self) -> "Schedule":
        if not self.reducing:
            return replace(self, phase=OuterPhase.SETTLE)
        there = self.opened & self.members
        reducers = there - self.liars or there
        return replace(self, phase=OuterPhase.PRODUCTS, reducers=reducers) if reducers else self._begun()

    def _begun(self) -> "Schedule":
        """The outer step's next try: of the members, and those who waited. Who is shut out waits until it is not, or
        until too few others are left."""
        made = Schedule(
            self.digest, self.step, self.attempt + 1, marks=self.marks, quorum=self.quorum, whole=self.whole,
            reducing=self.reducing, liars=self.liars,
        )  # fmt: skip
        left = (self.members | self.waiting) - self.shut_out
        if len(left) >= self.quorum:
            staying = (self.waiting | self.members - self.barred) & self.shut_out
            return replace(made, members=left, waiting=staying, barred=self.barred, disputed=self.disputed)
        everyone = (self.members - self.barred) | self.waiting
        return replace(made, members=everyone) if len(everyone) >= self.quorum else replace(made, waiting=everyone)


_NEXT = {
    OuterPhase.PRODUCTS: OuterPhase.MEANS, OuterPhase.MEANS: OuterPhase.CHECK, OuterPhase.CHECK: OuterPhase.SETTLE,
}  # fmt: skip


def _without(documents: Mapping[str, str], sites: Collection[str]) -> dict[str, str]:
    return {site: document for site, document in documents.items() if site not in sites}
