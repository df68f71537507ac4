"""What an environment said, kept since the same is asked again: by a worker turn by turn, by seats that share a
machine."""

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

KEPT, KEPT_CHARS = 1 << 16, 1 << 25
Said = float | str | None


class KeptAnswers:
    """The last `most` answers, whose texts take at most `chars` characters together: whoever makes an echo say 64 KiB
    each time must not fill this machine's memory."""

    def __init__(self, most: int = KEPT, chars: int = KEPT_CHARS) -> None:
        self._most, self._limit = most, chars
        self._lock, self._said, self._chars = threading.Lock(), OrderedDict[bytes, Said](), 0

    def get(self, question: Any, ask: Callable[[], Said]) -> Said:
        """The answer to a question that JSON can hold; `ask` gives it where it is not kept, and what that raises is
        raised."""
        key = hashlib.sha256(json.dumps(question).encode()).digest()
        with self._lock:
            if key in self._said:
                self._said.move_to_end(key)
                return self._said[key]
        value = ask()
        with self._lock:
            if key not in self._said:
                self._keep(key, value)
        return value

    @property
    def chars(self) -> int:
        """Characters of all kept texts."""
        return self._chars

    def _keep(self, key: bytes, value: Said) -> None:
        self._said[key] = value
        self._chars += _chars(value)
        while len(self._said) > self._most or self._chars > self._limit:
            self._chars -= _chars(self._said.popitem(last=False)[1])


def _chars(value: Said) -> int:
    return len(value) if isinstance(value, str) else 0
