"""What moves the outer steps: events in the order of one log, as the schedule (trainer/sites/schedule.py) is told."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class OuterPhase(Enum):
    COLLECT = "collect"
    OPEN = "open"
    PRODUCTS = "products"
    MEANS = "means"
    CHECK = "check"
    SETTLE = "settle"


@dataclass(frozen=True)
class _OfSite:
    site: str


@dataclass(frozen=True)
class _OfStep:
    step: int


@dataclass(frozen=True)
class SiteJoined(_OfSite):
    """`site` holds the state of `digest` and asks to be a member from the next boundary on."""

    digest: bytes


@dataclass(frozen=True)
class SiteLeft(_OfSite):
    """`owing`: with a part of the step's work, that is to be dealt anew."""

    owing: bool = False


@dataclass(frozen=True)
class SitePutOut(_OfSite):
    """What `site` handed in is refused, or (`disputed`) it says that it cannot use what is dealt to it."""

    disputed: bool = False


class NothingLeft(_OfStep):
    """Of all that outer step `step` trains on too little can be used: it is settled of nothing."""


class WorkDealt(_OfStep):
    """It is known what outer step `step` trains on: whoever has joined by now takes part."""


@dataclass(frozen=True)
class HashesSigned(_OfSite):
    """`site` signed the contribution of hash `document` to outer step `step` from the state of `base`."""

    step: int
    base: bytes
    document: str


@dataclass(frozen=True)
class PayloadOpened(_OfSite):
    """The payload of that document is published and has its hashes."""

    step: int
    document: str


@dataclass(frozen=True)
class PartsTold(_OfStep):
    """In attempt `attempt` each of the sites of `documents` has told its part of phase `phase`: products or means of
    the shards that it reduces, or that it has all means."""

    attempt: int
    phase: OuterPhase
    documents: Mapping[str, str]


@dataclass(frozen=True)
class PartWrong(_OfSite):
    """What `site` published is shown to be wrong; `lied`: of the shards that it reduces."""

    lied: bool


@dataclass(frozen=True)
class PhaseTimeUp(_OfStep):
    """For phase `phase` of the `attempt`-th try at an outer step."""

    attempt: int
    phase: OuterPhase


@dataclass(frozen=True)
class StepSettled(_OfStep):
    """`after`: digest of the state after the outer step; None if too few contributions count."""

    attempt: int
    after: bytes | None


Event = (
    SiteJoined | SiteLeft | SitePutOut | WorkDealt | NothingLeft | HashesSigned | PayloadOpened | PartsTold | PartWrong
    | PhaseTimeUp | StepSettled
)  # fmt: skip
