"""Runs a function on several ranks of gloo, in processes forked from one that has torch imported already."""

import multiprocessing
import os
import pickle
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, cast

from torch.distributed import TCPStore  # type: ignore[attr-defined]

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    ["pytest", "transformers.models.qwen2.modeling_qwen2", "engines.loading", "trainer.learner"]
)


def on_ranks(world: int, work: Callable[..., Any], *args: Any, seconds: float = 60.0) -> list[Any]:
    """What `work(ranks, *args)` returns on each of `world` ranks, in their order; they wait for one another for at most
    `seconds`. Raises AssertionError if any of them fails."""
    answers = outcomes(world, work, *args, seconds=seconds)
    failures = [text for failed, text in answers if failed]
    if failures:
        raise AssertionError("\n".join(failures))
    return [value for _, value in answers]


def outcomes(
    world: int, work: Callable[..., Any], *args: Any, seconds: float = 60.0, patience: float = 120.0
) -> list[tuple[bool, Any]]:
    """For each rank (False, its result) or (True, what went wrong), at the latest after `patience` seconds."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # ours, as with torch's launcher
    ends, processes = [], []
    for rank in range(world):
        ours, theirs = _CONTEXT.Pipe()
        environment = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_PORT": store.port}
        process = _CONTEXT.Process(target=_rank, args=(theirs, environment, seconds, work, args), daemon=True)
        process.start()
        theirs.close()
        ends.append(ours)
        processes.append(process)
    try:
        end_of_patience = time.monotonic() + patience
        return [_answer(end, end_of_patience - time.monotonic()) for end in ends]
    finally:
        for process in processes:
            process.join(1)
            process.kill()


def _answer(end: Connection, seconds: float) -> tuple[bool, Any]:
    try:
        if not end.poll(max(0.0, seconds)):
            return True, "no answer in time"
        return cast(tuple[bool, Any], pickle.loads(end.recv_bytes()))
    except EOFError:
        return True, "the rank died"


def _rank(
    end: Connection, environment: dict[str, int], seconds: float, work: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    import torch

    from engines.loading import set_threads
    from trainer.ranks import join_ranks

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    os.environ |= {name: str(value) for name, value in environment.items()}
    set_threads(1)
    torch.manual_seed(0)
    try:
        ranks = join_ranks("cpu", seconds)
        end.send_bytes(pickle.dumps((False, work(ranks, *args))))  # `send` would share tensors with a process that ends
        ranks.close()
    except BaseException:
        end.send_bytes(pickle.dumps((True, traceback.format_exc())))
