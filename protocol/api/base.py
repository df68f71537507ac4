"""What all documents of the HTTP interface share: strictness, field types with limits, errors, parsing."""

import re
from typing import Annotated, ClassVar, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    PlainSerializer,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
)

from protocol import signing
from protocol.encoding import parse_json
from protocol.errors import IntegrityError, first_problem, printable

T = TypeVar("T")
_BASE_UNITS = r"-?(0|[1-9][0-9]{0,77})"
_ADDRESS = {"pattern": "^0x[0-9a-fA-F]{40}$"}
MAX_FIELDS = 64  # Fields of an object in a request


def _base_units(value: object) -> object:
    return int(value) if isinstance(value, str) and re.fullmatch(_BASE_UNITS, value) else value


def at_most(count: int) -> BeforeValidator:
    """Return a validator that refuses a longer dictionary before any entry is validated; `max_length` validates all."""

    def check(value: object) -> object:
        if isinstance(value, dict) and len(value) > count:
            raise ValueError(f"there are more than {count} entries")
        return value

    return BeforeValidator(check)


Hex64 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Address = Annotated[str, Field(max_length=42, json_schema_extra=_ADDRESS), AfterValidator(signing.checked_address)]
Signature = Annotated[str, Field(pattern=r"^0x[0-9a-f]{130}$")]
StepNumber = Annotated[int, Field(ge=0, lt=1 << 20)]
Sequence = Annotated[int, Field(ge=0, lt=1 << 28)]
Counter = Annotated[int, Field(ge=0, lt=1 << 24)]
Size = Annotated[int, Field(ge=1, le=1 << 40)]
UnixTime = Annotated[float, Field(ge=0, lt=1 << 40)]
NO_NUL = r"^[^\x00]*$"  # PostgreSQL stores no text with the character 0
Name = Annotated[str, Field(max_length=64, pattern=NO_NUL)]
Text = Annotated[str, Field(max_length=200, pattern=NO_NUL)]
Reason = Annotated[str, AfterValidator(lambda text: printable(text, 200))]
"""A reason for a terminal: one line, cut after 200 characters."""
Metrics = Annotated[dict[Name, float], Field(max_length=MAX_FIELDS), at_most(MAX_FIELDS)]
Rows = Annotated[list[T], FailFast()]
"""A list that is refused at its first invalid item: pydantic would keep an error for every one of millions."""
Amount = Annotated[
    int,
    BeforeValidator(_base_units),
    PlainSerializer(str, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": f"^{_BASE_UNITS}$", "description": "base units, in decimal"}),
]
"""Base units. On the wire a decimal string, since JavaScript's numbers end at 2⁵³."""


class RequestBody(BaseModel):
    """What a client sends: one strict JSON object of at most MAX_BYTES. Unknown fields are ignored: a newer client may
    send more, and the request's signature covers all bytes."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, allow_inf_nan=False)
    MAX_BYTES: ClassVar[int] = 64 << 10


class SignedBody(RequestBody):
    """A part of what is signed as canonical JSON, without unknown fields: nobody could check their signature."""

    model_config = ConfigDict(extra="forbid")


class ResponseBody(BaseModel):
    """What a service answers. Unknown fields are ignored: a newer service may send more."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, allow_inf_nan=False)


class ErrorBody(ResponseBody):
    """Every answer of 4xx and 5xx: what was wrong, and what to do about it (possibly empty)."""

    error: str
    hint: str = ""


def parse_response(kind: TypeAdapter[T], data: bytes, source: str) -> T:
    """Return the answer of the service at URL `source`. Raises IntegrityError, which names it, for anything else."""
    try:
        value = parse_json(data)
    except ValueError:
        raise IntegrityError(f"{source} does not answer JSON", "check that the URL is right") from None
    try:
        # Not `validate_json`: its errors would each hold a copy of the whole answer.
        return kind.validate_python(value)
    except ValidationError as error:
        field, problem = first_problem(error.errors(include_url=False, include_input=False, include_context=False))
        raise IntegrityError(f"{source} sends an invalid answer: `{field}`: {problem}", "tell its owner") from None
