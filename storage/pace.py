"""How a source of objects has done so far, and what is expected of it. Pure."""

from dataclasses import dataclass, field

_GUESS, _SMOOTH, _WORST = 1e6, 0.3, 10
_TELLING, _LONG = 64 << 10, 1.0
"""Fewer bytes within fewer seconds say little of a pace: that was the way there and back."""


@dataclass(slots=True)
class SourcePace:
    """Bytes a second, smoothed, 0 while unknown; failures and missing objects in a row; requests under way. `spoilt`:
    what it left unfinished was wrong once, so nobody goes on with that any more. Seconds are the caller's."""

    rate: float = 0.0
    failures: int = 0
    misses: int = 0
    busy: int = 0
    spoilt: bool = False
    _blame: float = field(default=1.0, init=False)

    def seconds(self, size: int) -> float:
        """Until it would have sent `size` bytes more, if it works."""
        return (self.busy + 1) * (size if size > 0 else 0) / (self.rate or _GUESS)

    def expected(self, size: int) -> float:
        """The same, with what it failed at. An unknown source is tried once, then it has to show."""
        if self.rate or self.busy or self._blame > 1.0:
            return (self.busy + 1) * (size if size > 0 else 0) / (self.rate or _GUESS) * self._blame
        return 0.0

    def succeeded(self, size: int, seconds: float) -> None:
        self._measured(size, seconds)
        self.failures = self.misses = 0
        self._blame = 1.0

    def overtaken(self, size: int, seconds: float) -> None:
        """Another source was done first; this one had sent `size` bytes."""
        if size:
            self.succeeded(size, seconds)

    def missed(self) -> None:
        """It does not have the object, which may be nobody's fault."""
        self.misses += 1
        self._blame_it()

    def failed(self) -> None:
        self.failures += 1
        self._blame_it()

    def caught(self) -> None:
        """Bytes of it were wrong, in an object that another source completed."""
        self.spoilt = True
        self.failed()

    def _blame_it(self) -> None:
        self._blame = 4.0 ** min(self.failures, _WORST) * 2.0 ** min(self.misses, _WORST)

    def _measured(self, size: int, seconds: float) -> None:
        if size < _TELLING and seconds < _LONG:
            return
        now = size / max(seconds, 1e-6)
        self.rate = (1 - _SMOOTH) * self.rate + _SMOOTH * now if self.rate else now
