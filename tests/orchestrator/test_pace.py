"""What the scheduler is told about recent files and steps."""

from chain.indexer.records import Pool, Step, Submission
from orchestrator.scheduler import measure
from protocol.verdict import Code
from tests.orchestrator.chain import TERMS


def pool(*times: int) -> Pool:
    steps = [Step(k, b"m" * 32, bytes(32), at + 1, at, at, "0x") for k, at in enumerate(times)]
    return Pool(1, "0xo", b"c" * 32, TERMS, 3600, 1, steps=steps)


def file(sequence: int, node: str, counter: int, time: int, code: Code = Code.NONE) -> Submission:
    return Submission(1, sequence, node, 0, counter, 10, 2, bytes(32), bytes(32), time, time, "0x", code=int(code))


def test_a_new_pool_has_no_pace() -> None:
    pace = measure(pool(100), [], {})
    assert (pace.making, pace.typical, pace.step, pace.useful) == ({}, 0.0, 0.0, {})


def test_the_newest_steps_tell_how_long_a_step_takes() -> None:
    assert measure(pool(0, 1000, 1004, 1010, 1014), [], {}).step == 5.0
    assert measure(pool(*range(0, 900, 100), *range(810, 890, 10)), [], {}).step == 10.0


def test_nodes_are_measured_by_their_own_newest_files() -> None:
    grants = {("0xa", n, 0): 100.0 + 10 * n for n in range(30)} | {("0xb", 0, 0): 100.0}
    files = [file(n, "0xa", n, 103 + 10 * n + 50 * (n < 10), Code.ACCEPT) for n in range(30)]
    files.append(file(30, "0xb", 0, 140, Code.ACCEPT))
    pace = measure(pool(0), files, grants)
    assert pace.making == {"0xa": 3.0, "0xb": 40.0}
    assert pace.typical == 3.0
    # Without a lease (or with one of long ago) a file says nothing.
    assert measure(pool(0), files, {}).making == {}


def test_fast_garbage_does_not_make_honest_nodes_slow() -> None:
    grants = {(f"0x{n}", 0, 0): 100.0 for n in range(20)} | {("0xa", 0, 0): 100.0}
    junk = [file(n, f"0x{n}", 0, 101, Code.REJECT_WEIGHTS if n % 2 else Code.NONE) for n in range(20)]
    pace = measure(pool(0), [*junk, file(20, "0xa", 0, 130, Code.ACCEPT)], grants)
    assert (pace.making, pace.typical) == ({"0xa": 30.0}, 30.0)


def test_trust_falls_with_files_that_were_not_accepted_and_comes_back() -> None:
    bad = [file(n, "0xa", n, 100, Code.REJECT_WEIGHTS) for n in range(4)]
    good = [file(4 + n, "0xa", 4 + n, 100, Code.ACCEPT) for n in range(16)]
    waiting = [file(20, "0xb", 0, 100)]
    assert measure(pool(0), [*bad, *waiting], {}).useful == {"0xa": 0.5}
    assert measure(pool(0), bad + good, {}).useful == {"0xa": 1.0}
