"""What a package may do to the process that runs it, and what that makes of a score: a failure, never a 0."""

import os
import re
import threading
import time
from pathlib import Path

import pytest

from environments.verifiers import process as process_module
from environments.verifiers.process import PackageProcess
from protocol.errors import ConfigError, ScoringUnavailable
from tests.environments.verifiers.conftest import MakeProcess
from tests.environments.verifiers.small import ROWS, small_package, turns


@pytest.fixture
def make(package: MakeProcess) -> MakeProcess:
    return lambda body, **arguments: package(ROWS + body, **arguments)


def score(body: str) -> str:
    return f"\n    def score(answer):\n        {body}\n"


def test_rows_and_scores(make: MakeProcess) -> None:
    process = make(score("return answer == '1'"), count=5)
    assert len(process.load()["rows"]) == 5 * 32
    assert '"Say 4."' in process.row(4)
    assert [process.score(1, turns(text)) for text in ("1", "2", "\0", "ä" * 60_000)] == [1.0, 0.0, 0.0, 0.0]
    assert make(score("return 1.0 + nowhere_defined")).score(0, turns("x")) == 0.0, "a mistake of the scorer's own"


def test_nothing_is_carried_to_the_next_score_and_what_a_package_prints_is_no_score(make: MakeProcess) -> None:
    loaded = '\n    seen = []\n    print(\'{"id": 1, "value": 1.0}\')\n'
    process = make(loaded + score("print('{\"value\": 1.0}'); seen.append(1); return len(seen) / 10"))
    assert {process.score(0, turns("x")) for _ in range(3)} == {0.1}


def test_clock_chance_and_alarms_decide_nothing(make: MakeProcess) -> None:
    body = "import random, signal, time; signal.alarm(1); return random.random() + time.time() + time.perf_counter()"
    first, second = make(score(body)), make(score(body))
    assert first.score(0, turns("x")) == first.score(0, turns("x")) == second.score(0, turns("x"))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("import os; os._exit(0)", "gave no answer"),
        ("import ctypes; return ctypes.CDLL(None).fork()", "another process"),
        ("import ctypes; return ctypes.CDLL(None).socket(2, 1, 0)", "the network or another process"),
        ("return len(bytearray(2 << 30))", "MemoryError"),
        ("raise TimeoutError", "TimeoutError"),
        ("import nowhere_to_be_found", "ModuleNotFoundError"),
    ],
)
def test_a_scorer_that_fails_has_no_score(make: MakeProcess, body: str, said: str) -> None:
    process = make(score(body))
    with pytest.raises(ScoringUnavailable, match=re.escape(said)):
        process.score(0, turns("x"))
    assert process.row(0), "the next question is answered"


def test_a_scorer_that_never_answers_is_ended(make: MakeProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "SCORE_SECONDS", 2.0)
    process = make(score("\n        while answer == 'hang':\n            pass\n        return 1.0"))
    with pytest.raises(ScoringUnavailable) as error:
        process.score(0, turns("hang"))
    assert "2 s" in error.value.what or "its time" in error.value.what
    assert process.score(0, turns("x")) == 1.0


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("vf.SingleTurnEnv([], vf.Rubric([score]))", "no rows"),
        ("object()", "no environment of one turn or several"),
        ("vf.SingleTurnEnv(rows(), vf.JudgeRubric([score]))", "asks a model"),
        ("vf.SingleTurnEnv([{'prompt': [{'role': 'tool', 'content': ''}]}], vf.Rubric([score]))", "roles tool"),
        ("vf.SingleTurnEnv([{'prompt': [{'role': 'user', 'content': [{}]}]}], vf.Rubric([score]))", "text"),
    ],
)
def test_what_cannot_be_verified_is_refused(make: MakeProcess, rows: str, said: str) -> None:
    loads = f"\n    def load_environment():\n        return {rows}\n"
    with pytest.raises(ConfigError, match=re.escape(said)):
        make(score("return 1.0") + loads).load()


def test_another_library_is_refused(tmp_path: Path) -> None:
    site = small_package(tmp_path / "site", ROWS + score("return 1.0"), version="0.1.9")
    process = PackageProcess("own", site, {"load": "own", "arguments": {}, "split": "train"})
    with pytest.raises(ConfigError, match="it needs verifiers"):
        process.load()
    process.close()


def test_the_process_outlives_the_thread_that_asked_first_and_is_replaced_if_it_is_killed(make: MakeProcess) -> None:
    process = make(score("return 1.0"))
    first = threading.Thread(target=process.load)
    first.start()
    first.join()
    pid = process.pid
    assert process.score(0, turns("x")) == 1.0
    assert process.pid == pid is not None
    os.kill(pid, 9)
    assert process.score(0, turns("x")) == 1.0
    assert process.pid != pid


# What a package might keep from one score to the next, and what its clocks say.


@pytest.fixture
def keeping(package: MakeProcess) -> MakeProcess:
    return lambda scored, loaded="": package(f"{ROWS}\n    {loaded}\n{score(scored)}")


@pytest.mark.parametrize("reward", ["nan", "inf", "-inf"])
def test_a_reward_that_is_no_finite_number_is_nothing_and_ends_no_process(keeping: MakeProcess, reward: str) -> None:
    process = keeping("return float(answer)")
    assert process.score(0, turns("0.5")) == 0.5
    pid = process.pid
    assert process.score(0, turns(reward)) == 0.0
    assert process.pid == pid


@pytest.mark.parametrize(
    "kept",
    ["-1, 4096", "file := os.memfd_create('kept'), os.ftruncate(file, 4096) or 4096"],
)
def test_memory_that_two_scores_would_share_is_no_score(keeping: MakeProcess, kept: str) -> None:
    process = keeping("kept[0] += 1; return kept[0] / 10", f"import mmap, os; kept = mmap.mmap({kept})")
    with pytest.raises(ScoringUnavailable, match="shares memory"):
        process.score(0, turns("x"))


PIPE = "import os; out, into = os.pipe(); os.write(into, b'1234'); os.set_blocking(out, False)"


def test_a_pipe_carries_nothing_from_one_score_to_the_next(keeping: MakeProcess) -> None:
    process = keeping("return len(os.read(out, 1)) * int(os.read(out, 1) or 0) / 10", PIPE)
    assert [process.score(0, turns("x")) for _ in range(2)] == [0.0, 0.0]


def test_a_file_that_was_open_is_read_from_the_same_place(keeping: MakeProcess) -> None:
    process = keeping("return os.read(file, 9)[0] / 256", "import os; file = os.open(__file__, 0); os.read(file, 9)")
    assert process.score(0, turns("x")) == process.score(0, turns("x")) > 0.0


CLOCKS = [
    *("datetime.datetime.now().timestamp()", "datetime.datetime.now(datetime.timezone.utc).timestamp()"),
    *("datetime.datetime.utcnow().timestamp()", "datetime.datetime.today().timestamp()"),
    *("datetime.date.today().toordinal()", "time.mktime(time.localtime())", "time.mktime(time.gmtime())"),
    *("time.ctime()", "time.asctime()", "time.strftime('%c')", "time.clock_gettime(time.CLOCK_REALTIME)"),
    *("time.clock_gettime_ns(time.CLOCK_MONOTONIC)", "time.perf_counter_ns()", "time.process_time_ns()"),
    *("time.thread_time_ns()", "time.thread_time()", "time.time()", "time.time_ns()"),
]


def test_every_clock_that_it_asks_stands_still(keeping: MakeProcess) -> None:
    process = keeping(f"return float(hash(({', '.join(CLOCKS)})) % 1_000_003)", "import datetime, time")
    value = process.score(0, turns("x"))
    process.close()
    time.sleep(1.1)
    assert process.score(0, turns("x")) == value
