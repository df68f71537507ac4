"""Runs a function on several ranks of gloo, in processes forked from one that has torch imported already."""

import multiprocessing
import os
import pickle
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, cast

from torch.distributed import TCPStore  # type: ignore[attr-defined]

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    ["pytest", "transformers.models.qwen2.modeling_qwen2", "engines.loading", "trainer.learner"]
)
SECONDS, PATIENCE = 60.0, 120.0
Outcome = tuple[bool, Any]  # (False, its result) or (True, what went wrong)


class Crew:
    """`world` ranks of one group, who take one piece of work after the other; unless they `stay`, each ends after its
    first one, whatever the others do."""

    def __init__(self, world: int, seconds: float, stay: bool) -> None:
        self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # ours, as with torch's launcher
        self._ends: list[Connection] = []
        self._processes: list[BaseProcess] = []
        for rank in range(world):
            ours, theirs = _CONTEXT.Pipe()
            environment = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_PORT": self._store.port}
            process = _CONTEXT.Process(target=_rank, args=(theirs, environment, seconds, stay), daemon=True)
            process.start()
            theirs.close()
            self._ends.append(ours)
            self._processes.append(process)

    def outcomes(self, work: Callable[..., Any], args: tuple[Any, ...], lost: int | None = None) -> list[Outcome]:
        """As the function of this name."""
        for end in self._ends:
            with suppress(BrokenPipeError):  # it died, which its answer says
                end.send_bytes(pickle.dumps((work, args)))
        latest = time.monotonic() + PATIENCE
        waits = (0.0 if rank == lost else latest - time.monotonic() for rank in range(len(self._ends)))
        return [_answer(end, seconds) for end, seconds in zip(self._ends, waits, strict=True)]

    def dismiss(self) -> None:
        """Who has answered ends, who has not is killed."""
        for end in self._ends:
            end.close()
        for process in self._processes:
            process.join(1)
            process.kill()


_WAITING: dict[int, Crew] = {}
"""By their number of ranks."""


def dismiss_all() -> None:
    """End the ranks that wait for more work."""
    while _WAITING:
        _WAITING.popitem()[1].dismiss()


def on_ranks(world: int, work: Callable[..., Any], *args: Any, stay: bool = True) -> list[Any]:
    """What `work(ranks, *args)` returns on each of `world` ranks, in their order; they wait for one another for at most
    a minute. The ranks stay for the next work, until `dismiss_all`, or end as processes do whose work is done. Raises
    AssertionError if any of them fails."""
    crew = (_WAITING.pop(world, None) if stay else None) or Crew(world, SECONDS, stay)
    answers = crew.outcomes(work, args)
    failures = [text for failed, text in answers if failed]
    if stay and not failures:
        _WAITING[world] = crew
    else:
        crew.dismiss()
    assert not failures, "\n".join(failures)
    return [value for _, value in answers]


def outcomes(
    world: int, work: Callable[..., Any], *args: Any, seconds: float = SECONDS, lost: int | None = None
) -> list[Outcome]:
    """Of each of some ranks of its own, that wait for one another at most `seconds`. Nobody waits for an answer of the
    rank that is `lost`."""
    crew = Crew(world, seconds, stay=False)
    try:
        return crew.outcomes(work, args, lost)
    finally:
        crew.dismiss()


def _answer(end: Connection, seconds: float) -> Outcome:
    try:
        if not end.poll(max(0.0, seconds)):
            return True, "no answer in time"
        return cast(Outcome, pickle.loads(end.recv_bytes()))
    except (EOFError, ConnectionResetError):
        return True, "the rank died"


def _rank(end: Connection, environment: dict[str, int], seconds: float, stay: bool) -> None:
    import torch

    from engines.loading import set_threads
    from trainer.distributed import join_ranks

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    os.environ |= {name: str(value) for name, value in environment.items()}
    set_threads(1)
    ranks = None
    with suppress(EOFError):  # there is no more work
        while True:
            work, args = pickle.loads(end.recv_bytes())
            torch.manual_seed(0)
            try:
                ranks = ranks or join_ranks("cpu", seconds)
                # `send` would share tensors with a process that ends
                answer = pickle.dumps((False, work(ranks, *args)))
            except BaseException:
                answer = pickle.dumps((True, traceback.format_exc()))
            end.send_bytes(answer)
            if not stay:
                break
    if ranks:
        ranks.close()
