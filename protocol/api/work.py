"""Slots, heartbeats and the trainer's reports: what those who do the work tell the orchestrator, and are told."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from protocol.api.base import (
    NO_NUL,
    Counter,
    Metrics,
    Name,
    Reason,
    RequestBody,
    ResponseBody,
    Rows,
    Sequence,
    StepNumber,
    Text,
    UnixTime,
)
from protocol.api.evaluation import SignedEvaluation

MAX_WAITS = 16
SlotId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class SlotRequest(RequestBody):
    """Ask to make the node's file `counter`; without one, the next that the chain expects of it. `ready`: the newest
    policy step whose weights the node has here, checked; without it, the newest usable step is meant."""

    counter: Counter | None = None
    ready: StepNumber | None = None


class WorkSlot(ResponseBody):
    """Leave to make one file: the node's `counter`-th, from policy step `step`; it lapses at `expires` (Unix seconds)
    unless heartbeats name `slot`."""

    slot: SlotId
    step: StepNumber
    counter: Counter
    expires: UnixTime


class NoSlot(ResponseBody):
    """No slot now: ask again after `wait` seconds."""

    wait: float = Field(ge=0.1, le=60)
    reason: Reason = ""


SlotResponse = WorkSlot | NoSlot


class WaitLine(RequestBody):
    """What somebody waits for, since when (Unix seconds)."""

    what: Text
    since: float


class HeartbeatRequest(RequestBody):
    """A process lives. Naming a `slot` renews its lease, up to a limit. `weights`: the newest policy step whose weights
    it has, checked."""

    role: Literal["worker", "validator", "trainer"]
    name: Name = ""
    version: Annotated[str, Field(max_length=32, pattern=NO_NUL)] = ""
    engine: Name = ""
    phase: Name = ""
    step: StepNumber | None = None
    weights: StepNumber | None = None
    slot: SlotId | None = None
    waits: Rows[WaitLine] = Field(default_factory=list, max_length=MAX_WAITS)
    metrics: Metrics = Field(default_factory=dict)


class HeartbeatResponse(ResponseBody):
    """The next heartbeat is due in `next` seconds; `step` is the newest usable policy step; `slot_expires` (Unix
    seconds) is null unless the node has the slot that it named; `version` is the service's."""

    state: Literal["healthy"] = "healthy"
    next: float
    step: StepNumber | None
    slot_expires: UnixTime | None
    version: str = ""


class StepRequest(RequestBody):
    """The trainer's report on the making of policy step `step`; timings in seconds."""

    MAX_BYTES: ClassVar[int] = 1 << 20
    step: StepNumber
    consumed: Rows[Sequence] = Field(default_factory=list, max_length=16384)
    metrics: Metrics = Field(default_factory=dict)
    timings: Metrics = Field(default_factory=dict)
    evaluation: SignedEvaluation | None = None

    @field_validator("consumed")
    @classmethod
    def _once(cls, value: list[int]) -> list[int]:
        if len(set(value)) != len(value):
            raise ValueError("a sequence is named twice")
        return value


class StepResponse(ResponseBody):
    """The report of `step` is kept."""

    step: StepNumber
