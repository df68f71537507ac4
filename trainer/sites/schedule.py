"""Who takes part in which outer step: a pure machine that follows one log of events.

An outer step is collected (members sign hashes of what they have), opened (they publish the payloads), and settled:
what counts is decided and applied. Only a settlement ends it, whatever is repeated, late or out of place; a settlement
that cannot be made, or that nobody is left for, begins it again. So no outer step is lost, and none is made twice.

Who writes the log is not this file's matter: replicas of one log agree.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum


class OuterPhase(Enum):
    COLLECT = "collect"
    OPEN = "open"
    SETTLE = "settle"


@dataclass(frozen=True)
class SiteJoined:
    """`site` holds the state of `digest` and asks to be a member from the next boundary on."""

    site: str
    digest: bytes


@dataclass(frozen=True)
class SiteLeft:
    site: str


@dataclass(frozen=True)
class SitePutOut:
    """What `site` handed in is refused, or it cannot use what is dealt to it."""

    site: str


@dataclass(frozen=True)
class NothingLeft:
    """Of all that outer step `step` trains on too little can be used: it is settled of nothing."""

    step: int


@dataclass(frozen=True)
class HashesSigned:
    """`site` signed the contribution of hash `document` to outer step `step` from the state of `base`."""

    site: str
    step: int
    base: bytes
    document: str


@dataclass(frozen=True)
class PayloadOpened:
    """The payload of that document is published and has its hashes."""

    site: str
    step: int
    document: str


@dataclass(frozen=True)
class WorkDealt:
    """It is known what outer step `step` trains on: whoever has joined by now takes part."""

    step: int


@dataclass(frozen=True)
class PhaseTimeUp:
    """For phase `phase` of the `attempt`-th try at an outer step."""

    step: int
    attempt: int
    phase: OuterPhase


@dataclass(frozen=True)
class StepSettled:
    """`after`: digest of the state after the outer step; None if too few contributions count."""

    step: int
    attempt: int
    after: bytes | None


Event = (
    SiteJoined | SiteLeft | SitePutOut | WorkDealt | NothingLeft | HashesSigned | PayloadOpened | PhaseTimeUp
    | StepSettled
)  # fmt: skip


@dataclass(frozen=True)
class Schedule:
    """`step`: the outer step under way, from the state of `digest`. `waiting`: who has joined and is a member from the
    next boundary on. `documents`: of whom signed; `opened`: of these, whose payload is there. `barred`: who has no
    part in this outer step any more, unless too few others are left: it signed two contributions, or was put out.
    `quorum`: as many must have joined before a step begins that
    nobody is left for. `whole`: a step is made of the work of all its members or begins again among those who are left,
    because each of them has a part of what is to be trained on."""

    digest: bytes
    step: int = 0
    attempt: int = 0
    phase: OuterPhase = OuterPhase.COLLECT
    members: frozenset[str] = frozenset()
    waiting: frozenset[str] = frozenset()
    documents: Mapping[str, str] = field(default_factory=dict)
    opened: frozenset[str] = frozenset()
    barred: frozenset[str] = frozenset()
    quorum: int = 1
    whole: bool = False

    @property
    def contributors(self) -> Mapping[str, str]:
        """What is to be settled: the documents of those who opened."""
        return {site: self.documents[site] for site in sorted(self.opened)}

    def after(self, event: Event) -> "Schedule":
        """The same object where the event changes nothing: it is a repetition, too late, or nobody's who may."""
        if isinstance(event, SiteJoined):
            return self._joined(event)
        if isinstance(event, SiteLeft):
            return self._left(event.site)
        if isinstance(event, WorkDealt):
            return self._begun() if self.waiting and event.step == self.step and not self.documents else self
        if isinstance(event, SitePutOut):
            return self._put_out(event.site)
        if isinstance(event, NothingLeft):
            collecting = event.step == self.step and self.phase == OuterPhase.COLLECT
            return replace(self, phase=OuterPhase.SETTLE, documents={}) if collecting else self
        if isinstance(event, HashesSigned):
            return self._committed(event)
        if isinstance(event, PayloadOpened):
            return self._opened(event)
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

    def _left(self, site: str) -> "Schedule":
        """What it has opened still counts: the work is done."""
        if site not in self.members | self.waiting:
            return self
        made = replace(self, members=self.members - {site}, waiting=self.waiting - {site})
        if site not in self.opened:
            made = replace(made, documents=_without(self.documents, {site}))
            if self.whole and site in self.members:
                return made._begun()
        return made._moved_on()

    def _put_out(self, site: str) -> "Schedule":
        if self.phase != OuterPhase.COLLECT or site not in self.members - self.barred:
            return self
        made = replace(self, documents=_without(self.documents, {site}), barred=self.barred | {site})
        return made._begun() if self.whole else made._moved_on()

    def _committed(self, event: HashesSigned) -> "Schedule":
        if (event.step, event.base) != (self.step, self.digest) or event.site not in self.members - self.barred:
            return self
        known = self.documents.get(event.site)
        if known is None and self.phase == OuterPhase.COLLECT:
            return replace(self, documents={**self.documents, event.site: event.document})._moved_on()
        if known in (None, event.document) or self.phase == OuterPhase.SETTLE:
            return self
        made = replace(self, documents=_without(self.documents, {event.site}), opened=self.opened - {event.site})
        made = replace(made, barred=self.barred | {event.site})
        return made._begun() if self.whole else made._moved_on()

    def _opened(self, event: PayloadOpened) -> "Schedule":
        fits = event.step == self.step and self.documents.get(event.site) == event.document
        if self.phase != OuterPhase.OPEN or not fits or event.site in self.opened:
            return self
        return replace(self, opened=self.opened | {event.site})._moved_on()

    def _timed(self, event: PhaseTimeUp) -> "Schedule":
        if (event.step, event.attempt, event.phase) != (self.step, self.attempt, self.phase):
            return self
        if self.phase == OuterPhase.SETTLE:
            return self._begun()
        arrived = frozenset(self.documents) if self.phase == OuterPhase.COLLECT else self.opened
        # Silence is death: who is alive joins again.
        made = replace(self, members=self.members & arrived)
        expected = self.members if self.phase == OuterPhase.COLLECT else frozenset(self.documents)
        if not arrived or (self.whole and expected - arrived):
            return made._begun()
        if self.phase == OuterPhase.COLLECT:
            return replace(made, phase=OuterPhase.OPEN)
        return replace(made, phase=OuterPhase.SETTLE, documents={site: self.documents[site] for site in arrived})

    def _settled(self, event: StepSettled) -> "Schedule":
        if (event.step, event.attempt) != (self.step, self.attempt) or self.phase != OuterPhase.SETTLE:
            return self
        if event.after is None:
            return self._begun()
        over = replace(self, members=self.members - self.barred, barred=frozenset())
        return replace(over._begun(), digest=event.after, step=self.step + 1, attempt=0)

    def _moved_on(self) -> "Schedule":
        """Past a phase in which nobody is waited for any more."""
        if self.phase == OuterPhase.COLLECT:
            if not self.documents and not self.members:
                return self._begun()
            done = bool(self.documents) and self.members - self.barred <= self.documents.keys()
            return replace(self, phase=OuterPhase.OPEN) if done else self
        if self.phase == OuterPhase.OPEN and self.opened >= self.documents.keys():
            return replace(self, phase=OuterPhase.SETTLE) if self.opened else self._begun()
        return self

    def _begun(self) -> "Schedule":
        """The outer step's next try: of the members, and those who waited. Who is barred waits for the next step, or
        until too few others are left."""
        made = Schedule(self.digest, self.step, self.attempt + 1, quorum=self.quorum, whole=self.whole)
        left = (self.members | self.waiting) - self.barred
        if len(left) >= self.quorum:
            return replace(made, members=left, waiting=self.waiting & self.barred, barred=self.barred)
        everyone = (self.members - self.barred) | self.waiting
        return replace(made, members=everyone) if len(everyone) >= self.quorum else replace(made, waiting=everyone)


def _without(documents: Mapping[str, str], sites: set[str]) -> dict[str, str]:
    return {site: document for site, document in documents.items() if site not in sites}
