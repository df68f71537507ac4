"""What runs in the package's own process (../process.py): the standard library alone, nothing of muster's."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any


class Refused(Exception):
    """With what to do about it."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.what, self.hint = what, hint


class NoScore(Exception):
    """Something of the machine or the package failed: there is no score, not even 0."""


# Exceptions that say something of the machine and nothing of the answer
MACHINES = (MemoryError, OSError, ImportError, TimeoutError)
MAX_ROWS = 1 << 17


def row_text(number: int, messages: Any, answer: Any, rest: Any) -> str:
    """Return canonical JSON. Raise Refused where the prompt is not of system's and user's texts."""
    row = {
        "answer": answer if isinstance(answer, str) else "",
        "messages": plain_prompt(number, messages),
        "rest": hashlib.sha256(json.dumps(rest, sort_keys=True, default=repr).encode()).hexdigest(),
    }
    return json.dumps(row, sort_keys=True, separators=(",", ":"))


def plain_prompt(number: int, messages: Any) -> list[list[str]]:
    """Return role and text of each message. Raise Refused."""
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    if not isinstance(messages, Sequence) or not messages:
        raise Refused(f"row {number} has no prompt", "choose a package whose environment asks first")
    plain = [list(plain_message(f"the prompt of row {number}", message)) for message in messages]
    roles = [role for role, _ in plain]
    if not set(roles) <= {"system", "user"} or "system" in roles[1:] or roles[-1] != "user":
        what = f"the prompt of row {number} has the roles {', '.join(roles)[:80]}"
        raise Refused(what, "only one system text and a user's texts can be asked: turn few-shot examples off")
    return plain


def plain_message(where: str, message: Any) -> tuple[str, str]:
    """Return role and text; what has no role of its own is the user's. Raise Refused."""
    role, content = str(field(message, "role")), field(message, "content")
    if isinstance(content, Sequence) and not isinstance(content, str):
        parts = [field(part, "text") for part in content if field(part, "type") == "text"]
        content = "\n".join(map(str, parts)) if len(parts) == len(content) else 0
    if content is not None and not isinstance(content, str):
        raise Refused(f"{where} is not text alone", "images and sounds cannot be asked")
    return "user" if role == "text" else role, content or ""


def field(message: Any, name: str) -> Any:
    return message.get(name) if isinstance(message, Mapping) else getattr(message, name, None)
