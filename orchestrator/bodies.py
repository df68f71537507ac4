"""Request bodies: strict models, and a JSON reader without the leniencies of the standard one."""

import json
import math
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from protocol.encoding import parse_json
from protocol.errors import MusterError

MAX_DEPTH = 8
MAX_SEQUENCE = 1 << 28
MAX_STEP = 1 << 20

Hex64 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Step = Annotated[int, Field(ge=0, lt=MAX_STEP)]
Text = Annotated[str, Field(max_length=200)]
Name = Annotated[str, Field(max_length=64)]
Metrics = Annotated[dict[Name, float], Field(max_length=64)]


class HttpError(MusterError):
    """An answer of 4xx or 5xx: `status`, what was wrong, how to mend it, and after how many seconds to try again."""

    def __init__(self, status: int, what: str, hint: str = "", retry_after: int | None = None) -> None:
        super().__init__(what, hint)
        self.status = status
        self.retry_after = retry_after


class Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class SlotRequest(Body):
    counter: int | None = Field(None, ge=0, lt=1 << 24)


class UploadRequest(Body):
    kind: Literal["rollouts", "verdicts"]
    sha256: Hex64
    size: int = Field(ge=1, le=1 << 40)
    keccak256: Hex64 | None = None


class ReceiptRequest(Body):
    sha256: Hex64
    size: int = Field(ge=1, le=1 << 40)


class WaitLine(Body):
    what: Text
    since: float


class HeartbeatRequest(Body):
    role: Literal["worker", "validator", "trainer"]
    name: Name = ""
    version: Annotated[str, Field(max_length=32)] = ""
    engine: Name = ""
    phase: Name = ""
    step: Step | None = None
    slot: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")] | None = None
    waits: list[WaitLine] = Field(default_factory=list, max_length=16)
    metrics: Metrics = Field(default_factory=dict)


class StepRequest(Body):
    """The trainer's report on the making of policy step `step`; timings in seconds, `heldout` a mean reward."""

    step: Step
    consumed: list[Annotated[int, Field(ge=0, lt=MAX_SEQUENCE)]] = Field(default_factory=list, max_length=16384)
    metrics: Metrics = Field(default_factory=dict)
    timings: Metrics = Field(default_factory=dict)
    heldout: float | None = None

    @field_validator("consumed")
    @classmethod
    def _once(cls, value: list[int]) -> list[int]:
        if len(set(value)) != len(value):
            raise ValueError("a sequence is named twice")
        return value


B = TypeVar("B", bound=Body)


def parse(model: type[B], data: bytes) -> B:
    """The body as `model`. Raises HttpError 422 for anything but one strict JSON object of that shape: no duplicate or
    unknown fields, no NaN or numbers beyond a double, no lone surrogates, no deep nesting."""
    try:
        text = data.decode("utf-8")
        # This parser bounds its depth by itself; the standard one relies on the interpreter's recursion limit.
        parse_json(data)
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
        _check(value, MAX_DEPTH)
    except ValueError as error:
        raise HttpError(422, f"the body is not strict JSON: {str(error)[:200]}", "send one JSON object") from None
    if not isinstance(value, dict):
        raise HttpError(422, "the body is not a JSON object", "send one JSON object")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])[:100] or "the body"
        raise HttpError(422, f"field `{where}`: {first['msg']}", "see docs/orchestrator.md") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a field appears twice")
    return out


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is too large")
    return value


def _check(value: Any, depth: int) -> None:
    if depth < 0:
        raise ValueError("nested too deeply")
    if isinstance(value, str):
        value.encode("utf-8")
    elif isinstance(value, dict):
        for key, item in value.items():
            key.encode("utf-8")
            _check(item, depth - 1)
    elif isinstance(value, list):
        for item in value:
            _check(item, depth - 1)
