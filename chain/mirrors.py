"""Where else the bytes of a file are: URLs that were announced on chain by those who are believed."""

from dataclasses import dataclass, field

MAX_MIRROR = 500
"""Characters of an announced URL; longer ones are not believed."""

MOST_NODE_MIRRORS = 3
"""URLs that a node may announce for one file. A seat has one, its newest."""


@dataclass
class Mirrors:
    """Of one file: URLs of its own node, and of the seats that showed by their vote that they had it. Unchecked."""

    node: list[str] = field(default_factory=list)
    seats: dict[int, str] = field(default_factory=dict)

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.seats.values(), *self.node)))
