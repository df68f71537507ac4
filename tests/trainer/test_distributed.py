"""Ranks: sums, broadcasts, and what the others see when one is gone."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch

import psutil
import pytest
import torch

from protocol.waits import wait_for
from tests.trainer.crew import on_ranks, outcomes
from tests.trainer.helpers import alive
from trainer.distributed import Ranks, join_ranks, rank_device
from trainer.exits import RanksLostError


def exchange(ranks: Ranks) -> tuple[int, list[float], list[str], float]:
    own = torch.tensor([1.0, float(ranks.rank)], dtype=torch.float64)
    total = ranks.sum(own)
    said = ranks.broadcast([f"of rank {ranks.rank}", "ж"])
    ranks.barrier()
    return ranks.rank, total.tolist(), said, float(own[1])


def lose(ranks: Ranks, lost: int, how: signal.Signals) -> tuple[str, float]:
    if ranks.rank == lost:
        os.kill(os.getpid(), how)
    wait, start = partial(ranks.sum, torch.ones(3)) if lost else partial(ranks.command, ""), time.monotonic()
    with pytest.raises(RanksLostError) as caught:
        wait()
    return str(caught.value), time.monotonic() - start


def commanded(ranks: Ranks, idle: float) -> list[str]:
    """Rank 0 is elsewhere for longer than the others' limit, before each of two commands."""
    heard = []
    for number in range(2):
        if ranks.rank == 0:
            time.sleep(idle)
        heard.append(ranks.command(f"command {number} of rank {ranks.rank}"))
    return heard


def test_ranks_wait_for_a_command_as_long_as_rank_0_lives() -> None:
    heard = ["command 0 of rank 0", "command 1 of rank 0"]
    assert outcomes(3, commanded, 4.5, seconds=4.0) == [(False, heard)] * 3


def keys_after(ranks: Ranks, commands: int) -> int:
    """How many keys the group's store has."""
    for number in range(commands):
        ranks.command(number)
    joined: Any = ranks
    return int(joined._store.num_keys())


def test_commands_leave_no_keys_in_the_store() -> None:
    first, second = (on_ranks(2, keys_after, count)[0] for count in (1, 60))
    assert second <= first + 5


def test_the_key_of_every_command_is_removed_from_the_store() -> None:
    """A store that keeps them grows by every command, and each new one takes longer."""
    store, left = MagicMock(), dict[str, str]()
    store.set.side_effect = left.__setitem__
    store.delete_key.side_effect = left.pop
    with patch.multiple("trainer.distributed", join_store=lambda _: (store, 0, 2), dist=MagicMock()):
        ranks = Ranks("cpu", 60.0)
        assert [ranks.command(number) for number in range(3)] == [0, 1, 2]
        ranks.close()
    assert store.set.call_count == 3
    assert not left


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
    (failed, answer), other = outcomes(2, lose, 1, signal.SIGKILL)
    assert other == (True, "the rank died")
    assert not failed, answer
    message, seconds = answer
    assert message.startswith("a sum over ranks failed within its 60 s")
    assert "start again to resume" in message
    assert seconds < 30


@pytest.mark.parametrize(("lost", "what"), [(1, "a sum over ranks"), (0, "the wait for rank 0's next command")])
def test_nobody_waits_longer_than_the_limit_for_a_rank_that_hangs(lost: int, what: str) -> None:
    failed, answer = outcomes(2, lose, lost, signal.SIGSTOP, seconds=5.0, lost=lost)[1 - lost]
    assert not failed, answer
    message, seconds = answer
    assert message.startswith(f"{what} failed within its 5 s")
    assert 4.5 < seconds < 60


def test_a_machines_ranks_have_a_gpu_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert rank_device("cuda") == "cuda:3"
    assert rank_device("cuda:1") == "cuda:1"
    assert rank_device("cpu") == "cpu"


LAUNCH = """
import sys
from trainer.config import ParallelConfig
from trainer.distributed import Launcher
from runtime.process import serve
serve(Launcher(ParallelConfig(ranks=2, max_restarts=int(sys.argv[1])), ["-c", sys.argv[2], *sys.argv[3:]]), None)
"""
RANK = """
import os, signal, sys, time
from pathlib import Path
home, rank, world = Path(sys.argv[1]), int(os.environ["RANK"]), os.environ["WORLD_SIZE"]
life = len(list(home.glob(f"life-{rank}-*")))
(home / f"life-{rank}-{life}").write_text(f"{os.getpid()} of {world}")
"""


def launch(home: Path, program: str, restarts: int = 5) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", LAUNCH, str(restarts), RANK + program, str(home)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def lives(home: Path) -> dict[int, int]:
    """Rank → how often it was started."""
    return {rank: len(list(home.glob(f"life-{rank}-*"))) for rank in (0, 1)}


def wait_until_ready(home: Path) -> None:
    wait_for("both ranks", lambda: len(list(home.glob("ready-*"))) == 2 or None, 60, poll=0.05)


# Both ranks are there before either ends: the first one's end kills the other, even while it starts.
BOTH = "while len(list(home.glob('life-*-0'))) < 2: time.sleep(0.05)"


@pytest.mark.parametrize("code", [0, 5])
def test_a_deliberate_end_is_passed_on(tmp_path: Path, code: int) -> None:
    process = launch(tmp_path, f"{BOTH}\nsys.exit({code})")
    assert process.wait(60) == code
    assert lives(tmp_path) == {0: 1, 1: 1}


def test_a_killed_rank_ends_the_others_and_all_start_again(tmp_path: Path) -> None:
    """The second life is allowed to end; in the first one rank 1 is killed while rank 0 sleeps."""
    process = launch(
        tmp_path,
        f"""
{BOTH}
if life == 0:
    if rank == 1: os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)
""",
    )
    assert process.wait(200) == 0, "rank 0 did not sleep on"
    assert lives(tmp_path) == {0: 2, 1: 2}


def test_a_rank_that_keeps_failing_is_given_up(tmp_path: Path) -> None:
    process = launch(tmp_path, "sys.exit(3 if rank else 0)", restarts=1)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 3
    assert lives(tmp_path)[1] == 2
    assert "the ranks failed 2 times in a row (exit code 3)" in said


def test_a_signal_reaches_the_ranks_and_waits_for_them(tmp_path: Path) -> None:
    process = launch(
        tmp_path,
        """
def finish(*_):
    time.sleep(1)
    (home / f"finished-{rank}").write_text("")
    sys.exit(4)
signal.signal(signal.SIGTERM, finish)
(home / f"ready-{rank}").write_text("")
time.sleep(60)
""",
    )
    wait_until_ready(tmp_path)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 4
    assert len(list(tmp_path.glob("finished-*"))) == 2


def test_ranks_do_not_outlive_their_launcher(tmp_path: Path) -> None:
    process = launch(
        tmp_path,
        """
from protocol.files import die_with_parent
die_with_parent()
(home / f"ready-{rank}").write_text("")
time.sleep(600)
""",
    )
    wait_until_ready(tmp_path)
    ranks = [int((tmp_path / f"life-{rank}-0").read_text().split()[0]) for rank in (0, 1)]
    process.kill()
    process.wait(60)
    wait_for("the ranks' end", lambda: not any(map(alive, ranks)) or None, 60, poll=0.05)


def test_a_stranger_on_the_network_finds_nothing_of_the_ranks_to_talk_to(tmp_path: Path) -> None:
    """Torch's stores take anybody's pickles, so none of a run on one machine may listen beyond the machine."""
    process = launch(
        tmp_path,
        """
from trainer.distributed import join_ranks
ranks = join_ranks("cpu", 60)
(home / f"ready-{rank}").write_text("")
while not (home / "seen").exists():
    time.sleep(0.05)
ranks.close()
""",
    )
    wait_until_ready(tmp_path)
    launcher = psutil.Process(process.pid)
    connections = [one for each in (launcher, *launcher.children(recursive=True)) for one in each.net_connections()]
    listening = {one.laddr.ip for one in connections if one.status == psutil.CONN_LISTEN}
    (tmp_path / "seen").write_text("")
    assert process.wait(60) == 0
    assert listening == {"127.0.0.1"}
