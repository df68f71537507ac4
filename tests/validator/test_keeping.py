"""What must survive a kill: ballots, verdicts. And what the bench does when sources fail."""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from chain.records import Seat
from chain.state import State
from protocol.errors import IntegrityError, MusterError, UnreachableError
from protocol.seeds import AUDIT_EVERYTHING
from protocol.verdict import Code, Verdict
from storage.missing import MissingObjectError
from tests.validator import tiny
from validator import selectors
from validator.ballots import Ballot, BallotBox, new_salt
from validator.context import SubmissionFacts, verdict_on
from validator.judge_queue import JudgeQueue, JudgeTask, LaneVerdict
from validator.transaction_tasks import TransactionTasks
from validator.verdict_store import VerdictStore


def ballot(**changes: object) -> Ballot:
    base = Ballot("lane-1-2-0", 7, "0x" + "11" * 20, b"s" * 32, b"f" * 32, 0x21, b"v" * 32, new_salt(), b"c" * 32)
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


def test_a_ballot_is_found_again_after_a_restart(tmp_path: Path) -> None:
    first = ballot()
    BallotBox(tmp_path).keep(first)
    again = BallotBox(tmp_path)
    assert again.ready("lane-1-2-0", 7, b"s" * 32, b"f" * 32) == first
    assert again.committed("lane-1-2-0", 7, b"c" * 32) == first
    assert again.ready("lane-1-2-0", 7, b"t" * 32, b"f" * 32) is None
    assert again.ready("lane-1-2-0", 7, b"s" * 32, b"g" * 32) is None
    assert again.ready("lane-1-2-0", 70, b"s" * 32, b"f" * 32) is None
    assert again.committed("lane-1-2-1", 7, b"c" * 32) is None


def test_both_ballots_of_a_reorganised_round_are_kept(tmp_path: Path) -> None:
    box = BallotBox(tmp_path)
    for seed, commitment in ((b"s", b"c"), (b"t", b"d")):
        box.keep(ballot(seed=seed * 32, commitment=commitment * 32))
    assert len(list(box.of("lane-1-2-0", 7))) == 2
    assert box.committed("lane-1-2-0", 7, b"d" * 32).seed == b"t" * 32  # type: ignore[union-attr]
    box.forget("lane-1-2-0")
    assert not list(box.of("lane-1-2-0", 7))


def test_ballots_are_private_and_damage_is_named(tmp_path: Path) -> None:
    box = BallotBox(tmp_path)
    box.keep(ballot())
    (path,) = tmp_path.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text('{"salt": "zz"}')
    with pytest.raises(IntegrityError, match="damaged"):
        list(box.of("lane-1-2-0", 7))


def test_verdicts_are_kept_per_lane_seed_where_it_draws_a_sample(tmp_path: Path) -> None:
    verdicts = VerdictStore(tmp_path, b"c" * 32)
    verdict = tiny.verdict_on(tiny.honest(), tiny.work_of(), audit_rate=20000)
    facts = tiny.facts(tiny.work_of(), tiny.honest(), audit_rate=20000)
    verdicts.keep(facts, verdict)
    assert verdicts.find(facts) == verdict
    assert verdicts.find(dataclasses.replace(facts, lane_seed=b"x" * 32)) is None
    everything = tiny.facts(tiny.work_of(), tiny.honest())
    verdicts.keep(everything, verdict)
    redrawn = verdicts.find(dataclasses.replace(everything, lane_seed=b"x" * 32))
    assert redrawn is not None
    assert redrawn.lane_seed == "78" * 32
    for path in tmp_path.glob("*.json"):
        path.write_bytes(b"{}")
    assert verdicts.find(facts) is None


class Source:
    """Objects that fail in a given way some times, then are there."""

    def __init__(self, failures: list[MusterError], data: bytes) -> None:
        self.failures, self.data = failures, data

    def __call__(self, key: str, limit: int) -> bytes:
        if self.failures:
            raise self.failures.pop(0)
        return self.data


def verdict_of(facts: SubmissionFacts, code: Code) -> Verdict:
    return verdict_on(facts, tiny.CONFIG, code, {})


def opinion_of(tmp_path: Path, source: Source, patience: float = 30.0) -> tuple[LaneVerdict | None, list[bytes | None]]:
    seen: list[bytes | None] = []

    def judge_one(facts: SubmissionFacts, data: bytes | None, *rest: object) -> Verdict:
        seen.append(data)
        return verdict_of(facts, Code.ACCEPT if data else Code.UNAVAILABLE)

    verdicts = VerdictStore(tmp_path, b"c" * 32)
    folder = tiny.model_folder()
    bench = JudgeQueue(tiny.CONFIG, tiny.engine(1), source, lambda _: folder, verdicts, patience, judge_one)  # type: ignore[arg-type]
    bench.start()
    facts = tiny.facts(tiny.work_of(), tiny.honest())
    task = JudgeTask(("lane-1-0-0", facts.lane_seed, b"d" * 32), (facts,), ((),))
    deadline, verdict = time.monotonic() + 20, None
    while verdict is None and time.monotonic() < deadline:
        verdict = bench.ask(task)
        time.sleep(0.02)
    bench.stop()
    return verdict, seen


def test_a_file_that_comes_late_is_judged(tmp_path: Path) -> None:
    verdict, seen = opinion_of(tmp_path, Source([MissingObjectError("not there")], b"bytes"))
    assert verdict is not None
    assert verdict.codes == (Code.ACCEPT,)
    assert seen == [b"bytes"]


def test_a_file_that_no_source_has_is_unavailable(tmp_path: Path) -> None:
    verdict, _ = opinion_of(tmp_path, Source([MissingObjectError("not there")] * 99, b""), patience=0.0)
    assert verdict is not None
    assert verdict.codes == (Code.UNAVAILABLE,)


def test_silent_sources_never_count_against_a_file(tmp_path: Path) -> None:
    verdict, seen = opinion_of(tmp_path, Source([UnreachableError("down")] * 2, b"bytes"), patience=0.0)
    assert verdict is not None
    assert verdict.codes == (Code.ACCEPT,)
    assert seen == [b"bytes"]


def bench_of(tmp_path: Path, source: Source, seen: list[int]) -> JudgeQueue:
    """A bench whose judge remembers the sequences it was given."""

    def judge_one(facts: SubmissionFacts, data: bytes | None, *rest: object) -> Verdict:
        seen.append(facts.sequence)
        return verdict_of(facts, Code.ACCEPT if data else Code.UNAVAILABLE)

    verdicts, folder = VerdictStore(tmp_path, b"c" * 32), tiny.model_folder()
    return JudgeQueue(tiny.CONFIG, tiny.engine(1), source, lambda _: folder, verdicts, 0.0, judge_one)  # type: ignore[arg-type]


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def task_of(seed: bytes, *sequences: int, audit_rate: int = AUDIT_EVERYTHING) -> JudgeTask:
    facts = tiny.facts(tiny.work_of(), tiny.honest(), audit_rate=audit_rate)
    files = tuple(dataclasses.replace(facts, sequence=number, lane_seed=seed or bytes(32)) for number in sequences)
    return JudgeTask(("lane-1-0-0", seed, bytes([len(sequences)])), files, ((),) * len(sequences))


def test_what_was_judged_before_the_draw_is_not_judged_again(tmp_path: Path) -> None:
    seen: list[int] = []
    bench = bench_of(tmp_path, Source([], b"bytes"), seen)
    bench.start()
    bench.prepare(task_of(b"", 0))
    bench.prepare(task_of(b"", 0, 1))
    bench.prepare(task_of(b"", 0, 1))
    until(lambda: len(seen) == 2)
    assert not bench.lane_verdicts
    drawn = task_of(b"s" * 32, 0, 1, 2)
    until(lambda: bench.ask(drawn))
    bench.stop()
    assert seen == [0, 1, 2]


def test_what_is_asked_for_comes_first(tmp_path: Path) -> None:
    seen: list[int] = []
    bench = bench_of(tmp_path, Source([], b"bytes"), seen)
    bench.prepare(task_of(b"", 0, 1, 2))
    asked = task_of(b"s" * 32, 9)
    bench.ask(asked)
    bench.start()
    until(lambda: len(seen) == 4)
    bench.stop()
    assert seen[0] == 9


def test_a_file_that_is_not_there_yet_is_not_judged_before_the_draw(tmp_path: Path) -> None:
    seen: list[int] = []
    bench = bench_of(tmp_path, Source([MissingObjectError("not there")], b"bytes"), seen)
    bench.start()
    bench.prepare(task_of(b"", 0))
    until(lambda: seen)
    drawn = task_of(b"s" * 32, 0)
    until(lambda: bench.ask(drawn))
    bench.stop()
    assert bench.lane_verdicts[drawn.key].codes == (Code.ACCEPT,)


def test_where_the_draw_decides_what_is_looked_at_only_weights_are_fetched_before_it(tmp_path: Path) -> None:
    seen: list[int] = []
    bench = bench_of(tmp_path, Source([], b"bytes"), seen)
    fetched: list[int] = []
    bench._weights = lambda facts: fetched.append(facts.sequence) or tmp_path  # type: ignore[func-returns-value]
    bench.start()
    bench.prepare(task_of(b"", 0, 1, audit_rate=20000))
    until(lambda: fetched == [0, 1])
    bench.stop()
    assert not seen


@pytest.mark.parametrize(("seats", "ours", "likely"), [(8, 4, 1 - 4 / 56), (8, 1, 3 / 8), (8, 0, 0.0), (2, 2, 0.0)])
def test_the_chance_to_be_drawn(seats: int, ours: int, likely: float) -> None:
    state = State(seats={n: Seat(n, "0xo", f"0x{n}", 1, 0) for n in range(seats)})
    assert selectors.chance(state, ours, 3) == pytest.approx(likely)


def test_errands_do_not_repeat_until_their_block_is_seen() -> None:
    tasks, calls = TransactionTasks(1), []

    def task() -> int:
        calls.append(1)
        return 0

    assert tasks.run("key", 10, "an errand", task)
    deadline = time.monotonic() + 5
    while not calls and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)
    assert not tasks.run("key", 10, "an errand", task)
    assert tasks.run("key", 11, "an errand", task)
    deadline = time.monotonic() + 5
    while len(calls) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    tasks.stop()
    assert len(calls) == 2


def test_failed_errands_rest_and_reorganisations_forget() -> None:
    tasks = TransactionTasks(1)

    def fails() -> int:
        raise MusterError("no")

    assert tasks.run("key", 10, "an errand", fails, quiet=True)
    time.sleep(0.2)
    assert not tasks.run("key", 11, "an errand", fails)
    tasks.forget()
    tasks.stop()
