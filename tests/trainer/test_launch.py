"""The launcher: all ranks live and die together, deliberate ends are passed on, failures are started again."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

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


@pytest.mark.parametrize(("code", "started"), [(0, 1), (5, 1)])
def test_a_deliberate_end_is_passed_on(tmp_path: Path, code: int, started: int) -> None:
    process = launch(tmp_path, f"sys.exit({code})")
    assert process.wait(60) == code
    assert lives(tmp_path) == {0: started, 1: started}


def test_a_killed_rank_ends_the_others_and_all_start_again(tmp_path: Path) -> None:
    """The second life is allowed to end; in the first one rank 1 is killed while rank 0 sleeps."""
    process = launch(
        tmp_path,
        """
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
    _wait_for(lambda: len(list(tmp_path.glob("ready-*"))) == 2)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 4
    assert len(list(tmp_path.glob("finished-*"))) == 2


def test_ranks_do_not_outlive_their_launcher(tmp_path: Path) -> None:
    process = launch(
        tmp_path,
        """
from protocol.lifetime import die_with_parent
die_with_parent()
(home / f"ready-{rank}").write_text("")
time.sleep(600)
""",
    )
    _wait_for(lambda: len(list(tmp_path.glob("ready-*"))) == 2)
    ranks = [int((tmp_path / f"life-{rank}-0").read_text().split()[0]) for rank in (0, 1)]
    process.kill()
    process.wait(60)
    _wait_for(lambda: not any(_alive(rank) for rank in ranks))


def _alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def _wait_for(ready: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.05)


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
    _wait_for(lambda: len(list(tmp_path.glob("ready-*"))) == 2)
    launcher = psutil.Process(process.pid)
    connections = [one for each in (launcher, *launcher.children(recursive=True)) for one in each.net_connections()]
    listening = {one.laddr.ip for one in connections if one.status == psutil.CONN_LISTEN}
    (tmp_path / "seen").write_text("")
    assert process.wait(60) == 0
    assert listening == {"127.0.0.1"}
