"""What a verification found wrong: counted without bound, told for the first few of each kind."""

from dataclasses import dataclass, field

from protocol.errors import printable

_TOLD = 5


@dataclass
class DatasetFindings:
    """`told`: sentences, at most five of a kind, in the order in which they were found; `count`: of all."""

    told: list[str] = field(default_factory=list)
    count: int = 0
    _kinds: dict[str, int] = field(default_factory=dict)

    def add(self, kind: str, what: str) -> None:
        """`kind` groups findings that one cause may produce many of."""
        self.count += 1
        seen = self._kinds[kind] = self._kinds.get(kind, 0) + 1
        if seen <= _TOLD:
            self.told.append(printable(what, 400))

    def of(self, kind: str) -> int:
        """How many of this kind there are."""
        return self._kinds.get(kind, 0)
