"""An interpreter's code and a memory, brought together in a store, with our system interface."""

import functools
from typing import Any

import wasmtime

from environments.sandbox.interpreter import engine
from environments.sandbox.program import Ending, SandboxLimits
from environments.sandbox.system import Ended, System, TooManyCalls, TooMuchOutput

_OUT_OF_FUEL = wasmtime.TrapCode.OUT_OF_FUEL


class Instance:
    """Runs once. `system` holds what was written; `used` is the fuel so far."""

    def __init__(
        self, code: wasmtime.Module, memory: wasmtime.Module, stdin: bytes, limits: SandboxLimits, system: type[System]
    ) -> None:
        self._fuel = limits.fuel
        self.store = wasmtime.Store(engine())
        self.store.set_fuel(limits.fuel)
        self.store.set_limits(memory_size=limits.memory)
        self.system = system(self.store, stdin, limits)
        content = wasmtime.Instance(self.store, memory, []).exports(self.store)["memory"]
        assert isinstance(content, wasmtime.Memory)
        self.memory = self.system.memory = content
        imports: list[Any] = [self._import(one) for one in code.imports]
        self.exports = wasmtime.Instance(self.store, code, imports).exports(self.store)

    def _import(self, wanted: wasmtime.ImportType) -> Any:
        if wanted.module == "image":
            return self.memory
        assert isinstance(wanted.type, wasmtime.FuncType)
        assert wanted.name is not None
        return wasmtime.Func(self.store, wanted.type, functools.partial(self.system.call, wanted.name))

    @property
    def used(self) -> int:
        """Fuel."""
        return self._fuel - self.store.get_fuel()

    @property
    def stack(self) -> wasmtime.Global:
        """The stack pointer: where in memory the interpreter's own stack ends."""
        found = self.exports["stack"]
        assert isinstance(found, wasmtime.Global)
        return found

    def run(self, function: wasmtime.Func, *arguments: int) -> tuple[Ending, int]:
        """How it ended, and the exit code (−1 unless it exited). Raises wasmtime.Trap where this machine's own stack
        was too small, which would not be the program's doing."""
        try:
            function(self.store, *arguments)
        except Ended as end:
            return Ending.EXITED, end.code
        except TooMuchOutput:
            return Ending.OUTPUT, -1
        except TooManyCalls:
            return Ending.CALLS, -1
        except wasmtime.Trap as trap:
            if trap.trap_code is wasmtime.TrapCode.STACK_OVERFLOW:
                raise
            return (Ending.FUEL if trap.trap_code is _OUT_OF_FUEL else Ending.CRASHED), -1
        except (IndexError, OverflowError, MemoryError):  # a call of the system with an address outside its memory
            return Ending.CRASHED, -1
        return Ending.CRASHED, -1
