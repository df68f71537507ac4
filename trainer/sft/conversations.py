"""Conversations to imitate, from a file of JSON lines: what was said, and which of it is to be learned."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError, field_validator

from protocol.documents import Document
from protocol.encoding import parse_json
from protocol.errors import ConfigError, first_problem
from protocol.files import explained


class Part(Document):
    """A piece of an answer; one that is not `learned` is only context for what follows it."""

    text: str
    learned: bool = True


class Message(Document):
    """One turn. An assistant's may come in parts, of which only some are learned; they are tokenized apart."""

    role: Literal["system", "user", "assistant"]
    content: str | Annotated[tuple[Part, ...], Field(min_length=1)]

    @property
    def parts(self) -> tuple[Part, ...]:
        return (Part(text=self.content),) if isinstance(self.content, str) else self.content

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts)


class Conversation(Document):
    """Turns, at least one of them the assistant's: `{"messages": [{"role": …, "content": …}, …]}`."""

    messages: Annotated[tuple[Message, ...], Field(min_length=2)]

    @field_validator("messages")
    @classmethod
    def _answered(cls, value: tuple[Message, ...]) -> tuple[Message, ...]:
        if all(message.role != "assistant" for message in value):
            raise ValueError("no turn is the assistant's: there is nothing to learn")
        if value[0].role == "assistant":
            raise ValueError("the assistant cannot speak first")
        return value


def read_conversations(path: Path) -> Iterator[Conversation]:
    """The conversations of a file, one JSON object a line; empty lines are passed over. Raises ConfigError that names
    file, line and field."""
    with explained(f"read {path}", "check `data`"), path.open(encoding="utf-8", errors="strict") as lines:
        try:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _parse(line, f"{path}, line {number}")
        except UnicodeDecodeError:
            raise ConfigError(f"{path} is not UTF-8 text", "name a file of JSON lines") from None


def _parse(line: str, where: str) -> Conversation:
    try:
        return Conversation.model_validate(parse_json(line))
    except ValidationError as error:
        field, problem = first_problem(error.errors(), "the line")
        raise ConfigError(f"{where}: `{field}`: {problem}", "mend the line") from None
    except ValueError as error:
        raise ConfigError(f"{where}: it is not JSON: {error}", "write one JSON object a line") from None
