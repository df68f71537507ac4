"""What is asked of a sandbox and what it says: documents without behaviour."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

MIB = 1 << 20


class Ending(StrEnum):
    """How a run ended. Everything but `exited` is the program's own doing and the same on every machine (WASI)."""

    EXITED = "exited"
    FUEL = "out of fuel"
    OUTPUT = "too much output"
    CALLS = "too many calls of the system"
    CRASHED = "crashed"


@dataclass(frozen=True)
class SandboxLimits:
    """Counted, not timed. `fuel`: instructions of WebAssembly; `memory`: bytes of the whole interpreter; `output`:
    bytes of standard output and errors together; `calls`: of the system interface (reads, writes, clock)."""

    fuel: int = 10_000_000_000
    memory: int = 256 * MIB
    output: int = MIB
    calls: int = 20_000

    @property
    def seconds(self) -> float:
        """Wall clock after which the machine, not the program, has failed: a hundredth of a usual core's speed."""
        return 30.0 + self.fuel / 40_000_000


@dataclass(frozen=True)
class SandboxProgram:
    """`source`: Python. `stdin`: what it reads. With a `function`, that one is called with `arguments` (JSON values)
    once the source has run; its result is then, as JSON, the only standard output."""

    source: str
    stdin: bytes = b""
    function: str = ""
    arguments: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class SandboxOutcome:
    """`code`: the exit code, −1 unless it exited. `fuel`, `memory`: used, in the units of the limits."""

    ending: Ending
    code: int
    stdout: bytes
    stderr: bytes
    fuel: int
    memory: int

    @property
    def succeeded(self) -> bool:
        """It ended by itself, with exit code 0."""
        return self.ending is Ending.EXITED and self.code == 0
