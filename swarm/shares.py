"""The same share for everybody of a number that is not enough for all."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")


def same_shares(wanted: Mapping[str, Sequence[T]], most: int) -> dict[str, list[T]]:
    """The first of each one's, at most `most` in all: the same number for everybody, and what one does not need the
    others have. What cannot be divided goes to those who want least."""
    left, out = most, {}
    for place, name in enumerate(sorted(wanted, key=lambda name: len(wanted[name]))):
        # Who wants least comes first, so that what it leaves is known when the others have theirs.
        out[name] = list(wanted[name][: -(-left // (len(wanted) - place))])
        left -= len(out[name])
    return out
