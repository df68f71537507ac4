"""Ranks: sums, broadcasts, and what the others see when one is gone."""

import os
import signal
import time

import pytest
import torch

from tests.trainer.crew import on_ranks, outcomes
from trainer.distributed import Ranks, join_ranks, rank_device
from trainer.exits import RanksLostError


def exchange(ranks: Ranks) -> tuple[int, list[float], list[str], float]:
    own = torch.tensor([1.0, float(ranks.rank)], dtype=torch.float64)
    total = ranks.sum(own)
    said = ranks.broadcast([f"of rank {ranks.rank}", "ж"])
    ranks.barrier()
    return ranks.rank, total.tolist(), said, float(own[1])


def lose_rank_1(ranks: Ranks, how: signal.Signals) -> tuple[str, float]:
    if ranks.rank == 1:
        os.kill(os.getpid(), how)
    start = time.monotonic()
    with pytest.raises(RanksLostError) as caught:
        ranks.sum(torch.ones(3))
    return str(caught.value), time.monotonic() - start


def commanded(ranks: Ranks, idle: float) -> list[str]:
    """Rank 0 is elsewhere for longer than the others' limit, before each of two commands."""
    heard = []
    for number in range(2):
        if ranks.rank == 0:
            time.sleep(idle)
        heard.append(ranks.command(f"command {number} of rank {ranks.rank}"))
    return heard


def fall_silent(ranks: Ranks) -> str:
    if ranks.rank == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
    with pytest.raises(RanksLostError) as caught:
        ranks.command("")
    return str(caught.value)


def test_ranks_wait_for_a_command_as_long_as_rank_0_lives() -> None:
    heard = ["command 0 of rank 0", "command 1 of rank 0"]
    assert outcomes(3, commanded, 4.5, seconds=4.0) == [(False, heard)] * 3


def test_ranks_do_not_wait_for_a_rank_0_that_gives_no_sign_of_life() -> None:
    _, (failed, message) = outcomes(2, fall_silent, seconds=5.0, lost=0)
    assert not failed, message
    assert message.startswith("the wait for rank 0's next command failed within its 5 s")


def test_a_process_alone_is_a_rank_of_one() -> None:
    ranks = join_ranks("cpu", 1.0)
    assert (ranks.rank, ranks.world) == (0, 1)
    value = torch.ones(2)
    total = ranks.sum(value)
    total += 1
    assert value.tolist() == [1.0, 1.0], "the sum is a new tensor"
    assert ranks.broadcast("x") == "x"
    ranks.barrier()
    ranks.close()


def test_ranks_sum_and_hear_what_rank_0_says() -> None:
    assert on_ranks(3, exchange) == [(rank, [3.0, 3.0], ["of rank 0", "ж"], float(rank)) for rank in range(3)]


def test_the_others_notice_at_once_that_a_rank_was_killed() -> None:
    (failed, answer), other = outcomes(2, lose_rank_1, signal.SIGKILL)
    assert other == (True, "the rank died")
    assert not failed, answer
    message, seconds = answer
    assert message.startswith("a sum over ranks failed within its 60 s")
    assert "start again to resume" in message
    assert seconds < 30


def test_nobody_waits_longer_than_the_limit_for_a_rank_that_hangs() -> None:
    (failed, answer), _ = outcomes(2, lose_rank_1, signal.SIGSTOP, seconds=5.0, lost=1)
    assert not failed, answer
    message, seconds = answer
    assert message.startswith("a sum over ranks failed within its 5 s")
    assert 4.5 < seconds < 60


def test_a_machines_ranks_have_a_gpu_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert rank_device("cuda") == "cuda:3"
    assert rank_device("cuda:1") == "cuda:1"
    assert rank_device("cpu") == "cpu"
