"""An interpreter's code and a memory, brought together in a store, with our system interface."""

import functools

import wasmtime

from environments.sandbox.interpreter import engine
from environments.sandbox.program import Ending, SandboxLimits
from environments.sandbox.system import Ended, System, TooManyCalls, TooMuchOutput

_OUT_OF_FUEL = wasmtime.TrapCode.OUT_OF_FUEL


class _Line:
    """The system interface as the code imports it, defined once and led to whichever system is `system`."""

    def __init__(self, code: wasmtime.Module) -> None:
        self.system: System | None = None
        self.linker = wasmtime.Linker(engine())
        self.linker.allow_shadowing = True
        for wanted in code.imports:
            if isinstance(wanted.type, wasmtime.FuncType):
                assert wanted.name is not None
                call = functools.partial(self._call, wanted.name)
                self.linker.define_func(wanted.module, wanted.name, wanted.type, call)

    def _call(self, name: str, *arguments: int) -> int | None:
        assert self.system is not None
        return self.system.call(name, *arguments)


_line = functools.cache(_Line)


class Instance:
    """Runs once, one at a time in a process. `system` holds what was written; `used` is the fuel so far."""

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
        self._line = _line(code)
        self._line.linker.define(self.store, "image", "memory", content)
        self.exports = self._line.linker.instantiate(self.store, code).exports(self.store)

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
        self._line.system = self.system
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
