"""Engines in processes of their own: no other work slows their steps, and each sees its own GPUs alone.

Requests may be sent at any time and from several threads; all of them share the engines' batches.
"""

import logging
import multiprocessing
import os
import queue
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, groupby
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

from engines.base import Completion, Engine, EngineInfo, Generator, Request, Sampling
from engines.torch_process import PACE, device_lost, show_gpus
from protocol.errors import ConfigError, MusterError, first_line
from protocol.files import die_with_parent
from protocol.waits import WAITS
from runtime.entry import Exit, essential, start_logging
from runtime.process import EngineConfig, StallGuard

log = logging.getLogger("muster.engine")
_END_SECONDS, _LOAD_SECONDS = 10.0, 3600.0
_HALF_SECONDS = 30.0  # after which what was computed counts half for the rate


class EngineLost(MusterError):
    """The process of an engine ended, with whatever it was computing."""


# What the worker asks for, and what the engine's process answers


@dataclass(frozen=True)
class _Load:
    weights: Path


@dataclass(frozen=True)
class _Add:
    names: Sequence[int]
    requests: Sequence[Request]
    sampling: Sampling


@dataclass(frozen=True)
class _Drop:
    names: Collection[int]


@dataclass(frozen=True)
class _Done:
    """Completions by name; `steps` and `seconds`: what was computed since the answer before."""

    completions: Sequence[tuple[int, Completion]]
    steps: int
    seconds: float


@dataclass(frozen=True)
class _Failed:
    """The requests of these names are given up, or the load failed, for this reason."""

    names: Collection[int]
    error: MusterError


class _Loop:
    """The engine's side: it computes as long as there is something to compute, and takes requests between two steps."""

    def __init__(self, engine: Engine, connection: Connection) -> None:
        self._engine, self._connection = engine, connection
        self._names: dict[int, int] = {}  # of the engine's tickets
        self._steps, self._since = 0, 0.0

    def run(self) -> NoReturn:
        while True:
            self._take()
            with PACE.computing():
                self._since = time.monotonic()
                while self._names:
                    self._step()
                    while self._connection.poll():
                        self._take()

    def _take(self) -> None:
        message = self._connection.recv()
        try:
            match message:
                case _Load(weights):
                    self._engine.load(weights)
                    self._connection.send(None)
                case _Add(names, requests, sampling):
                    self._names |= zip(self._engine.add(requests, sampling), names, strict=True)
                case _Drop(names):
                    gone = [ticket for ticket, name in self._names.items() if name in names]
                    self._engine.drop(gone)
                    for ticket in gone:
                        del self._names[ticket]
        except MusterError as error:
            self._fail(getattr(message, "names", ()), error)

    def _step(self) -> None:
        try:
            ended = self._engine.step()
        except MusterError as error:
            names, self._names = list(self._names.values()), {}
            self._fail(names, error)
            return
        self._steps += 1
        if ended:
            now = time.monotonic()
            done = [(self._names.pop(ticket), completion) for ticket, completion in ended]
            self._connection.send(_Done(done, self._steps, now - self._since))
            self._steps, self._since = 0, now

    def _fail(self, names: Collection[int], error: MusterError) -> None:
        self._connection.send(_Failed(names, error))
        if device_lost(error):  # only another process can open it again
            log.error("ending: %s", error)
            os._exit(Exit.STALLED)


def _serve(connection: Connection, parent: int, config: EngineConfig, home: Path) -> None:
    """Be the process of an engine until the parent ends or closes the connection."""
    die_with_parent(parent)
    start_logging()
    try:
        show_gpus(config.device, config.tensor_parallel)
        engine = config.model_copy(update={"device": config.device.partition(":")[0]}).make()
    except MusterError as error:
        connection.send(_Failed((), error))
        return
    from protocol.toploc import warm  # it brings torch, for which a process is prepared first

    warm.main()
    StallGuard(home).start()
    connection.send(engine.info)
    try:
        _Loop(engine, connection).run()
    except (EOFError, OSError):
        os._exit(Exit.DONE)


class _Child:
    """One engine's process, as its parent sees it. `waiting`: the inbox and place there of each request under way."""

    def __init__(self, config: EngineConfig, home: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, os.getpid(), config, home), name="engine")
        self._process.start()
        theirs.close()
        self._lock, self._names, self._answers = threading.Lock(), count(), queue.SimpleQueue[Any]()
        # Apart from `_lock`, for which `_read` waits: the process takes nothing while it waits for that.
        self._sending = threading.Lock()
        self.waiting: dict[int, tuple[queue.SimpleQueue[Any], int]] = {}
        self.tokens, self.steps, self.ended = 0, 0, 0
        self._recent = 0.0, 0.0  # tokens, and the seconds that they took
        self._lost: EngineLost | None = None
        self._why = ""
        essential("engine's answers", self._read).start()

    def answer(self) -> Any:
        """Return the answer to a load; the first one is the engine's information. Raises what the process did."""
        try:
            with WAITS.on("the engine's process to load"):
                answer = self._answers.get(timeout=_LOAD_SECONDS)
        except queue.Empty:
            self.close()
            raise EngineLost(f"the engine did not load within {_LOAD_SECONDS:.0f} s", "look at its log") from None
        if isinstance(answer, MusterError):
            self._answers.put(answer) if isinstance(answer, EngineLost) else None
            raise answer
        return answer

    @property
    def rate(self) -> float:
        """Tokens per second of late while it computed; 0 before the first completions."""
        tokens, seconds = self._recent
        return tokens / seconds if seconds else 0.0

    def load(self, weights: Path) -> None:
        self._send(_Load(weights))

    def add(
        self, inbox: "queue.SimpleQueue[Any]", indices: list[int], asked: list[Request], sampling: Sampling
    ) -> None:
        """Queue requests; `inbox` gets (place, completion) of each, or the error that ended it."""
        names = [next(self._names) for _ in indices]
        with self._lock:
            self.waiting |= {name: (inbox, index) for name, index in zip(names, indices, strict=True)}
        self._send(_Add(names, asked, sampling))

    def drop(self, inbox: "queue.SimpleQueue[Any]") -> None:
        with self._lock:
            names = {name for name, (its, _) in self.waiting.items() if its is inbox}
            for name in names:
                del self.waiting[name]
        if names and self._lost is None:
            self._send(_Drop(names))

    def close(self) -> None:
        self._process.kill()
        self._process.join(_END_SECONDS)

    def _send(self, message: object) -> None:
        with self._sending:
            if self._lost is not None:
                raise self._lost
            with suppress(OSError):  # `_read` notices, and tells everybody
                self._connection.send(message)

    def _read(self) -> None:
        try:
            while True:
                self._handle(self._connection.recv())
        except (EOFError, OSError):
            self._process.join(_END_SECONDS)
        what = self._why or f"the engine's process ended (exit code {self._process.exitcode})"
        with self._lock:
            self._lost = EngineLost(what, "its messages are in the log; look for room in memory, and at nvidia-smi")
            names = list(self.waiting)
        self._answers.put(self._lost)
        self._give_up(names, self._lost)

    def _handle(self, answer: object) -> None:
        match answer:
            case _Done(completions, steps, seconds):
                tokens = sum(len(completion.tokens) for _, completion in completions)
                self.tokens += tokens
                self.steps += steps
                self.ended += len(completions)
                kept = 0.5 ** (seconds / _HALF_SECONDS)
                self._recent = self._recent[0] * kept + tokens, self._recent[1] * kept + seconds
                for name, completion in completions:
                    with self._lock:
                        inbox, index = self.waiting.pop(name, (None, 0))
                    if inbox is not None:
                        inbox.put((index, completion))
            case _Failed(names, error):
                self._why = first_line(error)
                self._give_up(names, error)
                if not names:
                    self._answers.put(error)
            case _:
                self._answers.put(answer)

    def _give_up(self, names: Collection[int], error: MusterError) -> None:
        with self._lock:
            waiting = [self.waiting.pop(name) for name in names if name in self.waiting]
        for inbox in {id(inbox): inbox for inbox, _ in waiting}.values():
            inbox.put(error)


class EngineProcesses(Generator):
    """The engines of a configuration, `data_parallel` of them, as one. Calls raise EngineLost once a process ended.
    `home`: where a process says that its model does not compute. Thread-safe."""

    def __init__(self, config: EngineConfig, home: Path) -> None:
        self.slots = config.batch * config.data_parallel
        self._children: list[_Child] = []
        try:
            self._children += [_Child(own, home) for own in config.each()]
            kinds: set[EngineInfo] = {child.answer() for child in self._children}
            if len(kinds) > 1:
                devices = ", ".join(sorted(kind.device for kind in kinds))
                raise ConfigError(f"the engines compute on {devices}", "one node's engines are all of one kind")
        except BaseException:
            self.close()
            raise
        self.info = kinds.pop()

    @property
    def waiting(self) -> int:
        """Requests that did not end yet."""
        return sum(len(child.waiting) for child in self._children)

    @property
    def rate(self) -> float:
        """Tokens per second of all engines of late; 0 before the first completions."""
        return sum(child.rate for child in self._children)

    @property
    def length(self) -> float:
        """Tokens of a completion, on average; 0 before the first ones."""
        ended = sum(child.ended for child in self._children)
        return sum(child.tokens for child in self._children) / (ended or 1)

    @property
    def occupancy(self) -> float:
        """The share of the batches that was used while the engines computed, by the tokens that came of it."""
        steps = sum(child.steps for child in self._children)
        return sum(child.tokens for child in self._children) * len(self._children) / (steps * self.slots or 1)

    def load(self, weights: Path) -> None:
        """Load (or hot-reload) a Hugging Face folder; nothing may be under way. Raises IntegrityError if the folder is
        not a usable model."""
        for child in self._children:
            child.load(weights)
        failure: MusterError | None = None
        for child in self._children:
            try:
                child.answer()
            except MusterError as error:
                failure = failure or error
        if failure:
            raise failure

    def stream(self, requests: Sequence[Request], sampling: Sampling) -> Iterator[tuple[int, Completion]]:
        inbox = queue.SimpleQueue[Any]()
        try:
            # Equal prompts stay together: an engine computes them once.
            for _, indices in groupby(range(len(requests)), lambda index: requests[index].prompt):
                own = list(indices)
                child = min(self._children, key=lambda child: len(child.waiting))
                child.add(inbox, own, [requests[index] for index in own], sampling)
            for _ in requests:
                with WAITS.on("completions of the engine"):
                    answer = inbox.get()
                if isinstance(answer, MusterError):
                    raise answer
                yield answer
        finally:
            for child in self._children:
                child.drop(inbox)

    def close(self) -> None:
        for child in self._children:
            child.close()
