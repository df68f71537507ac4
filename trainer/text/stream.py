"""The stream of tokens that a site trains on: documents epoch by epoch in an order that the run's seed decides, of
which it takes those that are dealt to it, and a cursor from which it goes on to the token."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from protocol.sites.dealing import shuffled

Encode = Callable[[str], tuple[int, ...]]
"""The tokens of a document, with what begins and ends one."""
Mine = Callable[[int], bool]
"""Whether the document at a place of the stream is this site's."""


class Documents(Protocol):
    """Documents by number, from 0."""

    def __len__(self) -> int: ...

    def text(self, number: int) -> str: ...


@dataclass(frozen=True)
class Cursor:
    """`place`: documents of the stream that were passed, all epochs together. `offset`: of the document there, the
    token that is seen next; 0 where it was not begun."""

    place: int = 0
    offset: int = 0


class TextStream:
    """Of `count` documents. A document that is longer than `longest` tokens, or than what is left of a batch, is cut;
    the next piece begins with the last token of the one before, so that each token but a document's first is predicted
    exactly once an epoch."""

    def __init__(self, documents: Documents, count: int, encode: Encode, seed: bytes, longest: int) -> None:
        self._documents, self._count, self._encode = documents, count, encode
        self._seed, self._longest = seed, longest
        self._held: tuple[int, tuple[int, ...]] | None = None
        self.cursor = Cursor()

    def document(self, place: int) -> int:
        """The number of the document at a place of the stream."""
        epoch, at = divmod(place, self._count)
        return shuffled(self._seed, epoch, at, self._count)

    def skip_to(self, place: int) -> None:
        """Pass over what is before `place`; nothing where that is behind."""
        if place > self.cursor.place:
            self.cursor = Cursor(place)

    def take(self, tokens: int, mine: Mine) -> list[tuple[int, ...]]:
        """The next pieces of two tokens or more, `tokens` of them together, or one less; fewer where a whole epoch has
        no more that is this site's."""
        pieces: list[tuple[int, ...]] = []
        place, offset, passed = self.cursor.place, self.cursor.offset, 0
        while tokens >= 2 and passed < self._count:
            if not offset and not mine(place):
                place, passed = place + 1, passed + 1
                continue
            document = self._tokens(place)
            piece = document[offset : offset + min(tokens, self._longest)]
            if len(piece) >= 2:
                pieces.append(piece)
                tokens, passed = tokens - len(piece), 0
            if offset + len(piece) < len(document):
                offset += len(piece) - 1
            else:
                place, offset, passed = place + 1, 0, passed + 1
        self.cursor = Cursor(place, offset)
        return pieces

    def _tokens(self, place: int) -> tuple[int, ...]:
        if self._held is None or self._held[0] != place:
            self._held = place, self._encode(self._documents.text(self.document(place)))
        return self._held[1]
