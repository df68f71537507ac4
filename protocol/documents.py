"""Documents that people write, as JSON or TOML: read into a pydantic model, or refused with one clear line."""

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from protocol.encoding import parse_json, parse_toml
from protocol.errors import ConfigError, first_problem
from protocol.files import read_bounded

T = TypeVar("T", bound=BaseModel)
_MAX_BYTES = 1 << 20


class Document(BaseModel):
    """A document or a part of one: frozen, without unknown fields, infinities or NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def load_document(path: Path, kind: type[T], toml: bool | None = None) -> T:
    """What a file of JSON or TOML (by its suffix, unless said) says. Raises ConfigError naming file and field."""
    data = read_bounded(path, _MAX_BYTES)
    return parse_document(data, kind, str(path), path.suffix == ".toml" if toml is None else toml)


def parse_document(data: bytes, kind: type[T], where: str, toml: bool = False) -> T:
    """The same from bytes; `where` names them in the ConfigError."""
    try:
        return kind.model_validate(parse_toml(data) if toml else parse_json(data))
    except ValidationError as error:
        field, problem = first_problem(error.errors())
        raise ConfigError(f"{where}: `{field}`: {problem}", "correct that field") from None
    except ValueError as error:
        language = "TOML" if toml else "JSON"
        raise ConfigError(f"{where}: it is not {language}: {error}", "write the file again") from None
