"""What the five answers of a node and of a validator have in common. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from cli.answers import FiveAnswers, StatusPart, aged, behind_service, heard, running, silent, told
from cli.surroundings import chores
from runtime.diagnose import Alarm

SHOWN = 10
"""Lines of one kind that are shown at most."""
_ETHER = 10**18


@dataclass(frozen=True)
class RoleLook:
    """What was seen of somebody with a process; `now`: Unix seconds here. `chain`, `service`, `process` (parts in this
    order): facts, or None where nothing is known; `parts` say whether they are of now. `version`: the service's;
    `around`: what is wrong with machine, service and storage."""

    address: str
    now: float
    parts: tuple[StatusPart, StatusPart, StatusPart]
    chain: dict[str, Any] | None
    service: dict[str, Any] | None
    process: dict[str, Any] | None
    version: str = ""
    around: tuple[Alarm, ...] = ()

    def by_chain(self, lines: list[str], otherwise: str = "nothing") -> list[str]:
        """What the chain said, or `otherwise`, and how old that is."""
        return [*(lines or [otherwise]), *aged(self.parts[0], self.now)]

    def by_service(self) -> str:
        """Whether the service hears it."""
        return heard(self.parts[1], self.service, self.now)

    def at_work(self) -> list[str]:
        """What its process does, by its log and by what it told the service."""
        return [*running(self.parts[2], self.process), *told(self.parts[1], self.service)]

    def troubles(self) -> list[str]:
        """What to do about the machine, and about a service of another version or one that does not hear it."""
        _, service, process = self.parts
        heard = silent(service, self.service, process)
        return [*chores(self.around), *behind_service(service, self.version, self.service), *heard]


L = TypeVar("L", bound=RoleLook)


def five(look: L, *answers: Callable[[L], list[str]]) -> FiveAnswers:
    """The answers to the questions, in their order."""
    seen, doing, earned, refused, todo = (tuple(answer(look)) for answer in answers)
    return FiveAnswers(seen, doing, earned, refused, todo, look.parts)


def gas_line(what: str, needs: int, address: str) -> str:
    """What to send where; `needs` in wei."""
    return f"gas for fewer than {what} is left: send {needs / _ETHER:.6f} ETH to {address}"
