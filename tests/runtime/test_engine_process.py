"""Engines in processes of their own: shared by threads, together one engine, and missed when they die."""

import multiprocessing
import os
import queue
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engines.base import Completion, Request, Sampling
from engines.hf import TransformersEngine
from engines.torch_process import show_gpus
from protocol.errors import ConfigError, IntegrityError, MusterError
from runtime.engine_process import EngineLost, EngineProcesses, _Child, _Done
from runtime.process import EngineConfig
from tests.engines.models import save_tiny
from tests.engines.test_hf import SAMPLING, requests


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model"))


def completion(tokens: int = 1) -> Completion:
    return Completion((7,) * tokens, (-0.1,) * tokens, 0, (), b"")


@pytest.fixture(scope="module")
def two(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcesses]:
    made = EngineProcesses(EngineConfig(data_parallel=2, batch=8), tmp_path_factory.mktemp("home"))
    made.load(folder)
    yield made
    made.close()


def test_threads_share_the_batches_and_each_gets_its_own(two: EngineProcesses, folder: Path) -> None:
    own, asked = TransformersEngine(), [requests(8, seed) for seed in range(3)]
    own.load(folder)
    got = dict[int, list[Completion]]()

    def ask(number: int) -> None:
        got[number] = two.generate(asked[number], SAMPLING)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(3)]
    before = [child.ended for child in two._children]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    for number, some in enumerate(asked):
        assert [one.tokens for one in got[number]] == [one.tokens for one in own.generate(some, SAMPLING)]
    assert two.waiting == 0
    assert all(child.ended - old >= 20 for child, old in zip(two._children, before, strict=True)), (
        "both have their share"
    )
    assert 0.3 < two.occupancy <= 1
    assert two.rate > 0


def test_what_an_engine_refuses_is_raised_where_it_was_asked_and_others_go_on(
    two: EngineProcesses, tmp_path: Path
) -> None:
    with pytest.raises(MusterError, match="positions"):
        two.generate([Request((2,) * 250, (1, 2, 3), 10)], SAMPLING)
    with pytest.raises(IntegrityError):
        two.load(tmp_path)
    assert len(two.generate(requests(2), SAMPLING)) == 6


def test_requests_that_nobody_wants_any_more_are_given_up(two: EngineProcesses) -> None:
    endless = [Request((2, number), (number, 1, 1), 250) for number in range(40)]
    stream = two.stream(endless, Sampling(1.0, ()))
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert two.waiting == 0
    began = time.monotonic()
    two.generate([Request((2, 3), (1, 1, 1), 1)], SAMPLING)
    alone = time.monotonic() - began
    began = time.monotonic()
    two.generate(endless, Sampling(1.0, ()))
    assert alone < time.monotonic() - began, "it waited for none of them"


def test_an_engine_that_dies_is_missed_at_once_and_for_good(folder: Path, tmp_path: Path) -> None:
    made = EngineProcesses(EngineConfig(batch=8), tmp_path)
    made.load(folder)
    endless = [Request((2, number), (number, 1, 1), 250) for number in range(40)]
    threading.Timer(0.3, made._children[0]._process.kill).start()
    with pytest.raises(EngineLost, match="exit code -9"):
        made.generate(endless, Sampling(1.0, ()))
    with pytest.raises(EngineLost):
        made.generate(endless, SAMPLING)
    with pytest.raises(EngineLost):
        made.load(folder)


def test_a_file_that_joins_while_long_answers_come_in_blocks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than the pipe holds is under way in both directions, and the process takes nothing before it has sent."""
    ours, theirs = multiprocessing.Pipe()
    process = SimpleNamespace(start=bool, join=lambda seconds: None, exitcode=0)
    context = SimpleNamespace(Pipe=lambda: (ours, theirs), Process=lambda **given: process)
    monkeypatch.setattr(multiprocessing, "get_context", lambda kind: context)
    monkeypatch.setattr(theirs, "close", bool)
    child, inbox = _Child(EngineConfig(), Path()), queue.SimpleQueue[Any]()
    threads = [
        threading.Thread(target=child.add, args=(inbox, [0], [Request((7,) * 10**6, (1, 1, 1), 9)], SAMPLING)),
        threading.Thread(target=theirs.send, args=(_Done([(7, completion())], 1, 0.1),)),
        threading.Thread(target=theirs.send, args=(_Done([(0, completion(10**6))], 1, 0.1),)),
    ]
    for thread in threads:
        thread.daemon = True
        thread.start()
        thread.join(1)
    threads[2].join(20)
    assert not threads[2].is_alive(), "it was read"
    assert len(theirs.recv().requests[0].prompt) == 10**6
    assert inbox.get(timeout=20)[0] == 0


@pytest.mark.parametrize(
    ("shown", "device", "ranks", "seen"),
    [
        ("0,1,2,3,4,5,6,7", "cuda:2", 1, "2"),
        ("4,5,6,7", "cuda:2", 2, "6,7"),
        ("GPU-a,GPU-b", "cuda:1", 1, "GPU-b"),
        (None, "cuda:6", 2, "6,7"),
        ("4,5", "cuda", 1, "4,5"),
        ("4,5", "cpu", 1, "4,5"),
    ],
)
def test_each_engine_sees_its_own_gpus(
    monkeypatch: pytest.MonkeyPatch, shown: str | None, device: str, ranks: int, seen: str
) -> None:
    if shown is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    show_gpus(device, ranks)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == seen


def test_more_engines_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    with pytest.raises(ConfigError, match="shows 2 GPUs, and cuda:2 with 1 needs 3"):
        show_gpus("cuda:2")


def test_engines_have_gpus_one_after_the_other() -> None:
    def devices(**given: object) -> list[str]:
        return [one.device for one in EngineConfig.model_validate(given).each()]

    assert devices(device="cuda", data_parallel=3) == ["cuda:0", "cuda:1", "cuda:2"]
    assert devices(device="cuda:4", data_parallel=2, tensor_parallel=2) == ["cuda:4", "cuda:6"]
    assert devices(device="cuda") == ["cuda"]
    assert devices(data_parallel=2) == ["cpu", "cpu"]
