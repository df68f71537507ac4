"""What a package might keep from one score to the next, and what its clocks say."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from environments.errors import ScoringUnavailable
from environments.verifiers.process import PackageProcess
from tests.environments.verifiers.small import ROWS, small_package, turns

MakeProcess = Callable[..., PackageProcess]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakeProcess]:
    made: list[PackageProcess] = []

    def making(scored: str, loaded: str = "") -> PackageProcess:
        source = f"{ROWS}\n    {loaded}\n\n    def score(answer):\n        {scored}\n"
        site = small_package(tmp_path / str(len(made)), source)
        made.append(PackageProcess("own", site, {"load": "own", "arguments": {}, "split": "train"}))
        return made[-1]

    yield making
    for one in made:
        one.close()


@pytest.mark.parametrize("reward", ["nan", "inf", "-inf"])
def test_a_reward_that_is_no_finite_number_is_nothing_and_ends_no_process(make: MakeProcess, reward: str) -> None:
    process = make("return float(answer)")
    assert process.score(0, turns("0.5")) == 0.5
    pid = process.pid
    assert process.score(0, turns(reward)) == 0.0
    assert process.pid == pid


@pytest.mark.parametrize(
    "kept",
    [
        "import mmap; kept = mmap.mmap(-1, 4096)",
        "import mmap, os; file = os.memfd_create('kept'); os.ftruncate(file, 4096); kept = mmap.mmap(file, 4096)",
    ],
)
def test_memory_that_two_scores_would_share_is_no_score(make: MakeProcess, kept: str) -> None:
    process = make("kept[0] += 1; return kept[0] / 10", kept)
    with pytest.raises(ScoringUnavailable, match="shares memory"):
        process.score(0, turns("x"))


PIPE = "import os; out, into = os.pipe(); os.write(into, b'1234'); os.set_blocking(out, False)"


def test_a_pipe_carries_nothing_from_one_score_to_the_next(make: MakeProcess) -> None:
    process = make("return len(os.read(out, 1)) * int(os.read(out, 1) or 0) / 10", PIPE)
    assert [process.score(0, turns("x")) for _ in range(2)] == [0.0, 0.0]


def test_a_file_that_was_open_is_read_from_the_same_place(make: MakeProcess) -> None:
    process = make("return os.read(file, 9)[0] / 256", "import os; file = os.open(__file__, 0); os.read(file, 9)")
    assert process.score(0, turns("x")) == process.score(0, turns("x")) > 0.0


@pytest.mark.parametrize(
    "asked",
    [
        "datetime.datetime.now().timestamp()",
        "datetime.datetime.now(datetime.timezone.utc).timestamp()",
        "datetime.datetime.utcnow().timestamp()",
        "datetime.datetime.today().timestamp()",
        "datetime.date.today().toordinal()",
        "time.mktime(time.localtime())",
        "time.mktime(time.gmtime())",
        "hash(time.ctime() + time.asctime() + time.strftime('%c'))",
        "time.clock_gettime(time.CLOCK_REALTIME)",
        "time.clock_gettime_ns(time.CLOCK_MONOTONIC)",
        "time.perf_counter_ns()",
        "time.process_time_ns() + time.thread_time_ns() + time.thread_time()",
    ],
)
def test_the_clock_that_it_asks_stands_still(make: MakeProcess, asked: str) -> None:
    process = make(f"return float({asked})", "import datetime, time")
    said = process.score(0, turns("x"))
    process.close()
    assert process.score(0, turns("x")) == said
