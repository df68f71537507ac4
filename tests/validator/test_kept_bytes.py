"""A process killed after it had kept a file and before it had judged it, whose owner does not serve it again."""

from pathlib import Path
from typing import Any

import pytest

from protocol.errors import UnreachableError
from protocol.verdict import Code, Verdict
from tests.validator import world
from tests.validator.test_held_engines import engine
from validator.judging.context import SubmissionFacts, verdict_on
from validator.judging.pipeline import FileJudge, LoadedEngine
from validator.judging.sources import Sources
from validator.retention import RetentionStore


class WeightlessJudge(FileJudge):
    """Needs no model."""

    def _load(self, *_: object) -> Any:
        return None


def gone(key: str, limit: int) -> bytes:
    raise UnreachableError(f"nobody has {key}", "none")


def test_what_was_kept_is_judged_though_nobody_serves_it_again(tmp_path: Path) -> None:
    given, judged = world.context(), list[bytes | None]()
    facts, objects = given.facts, gone
    place, sha256 = (facts.work.id.pool.pool, facts.sequence), facts.commitment.sha256
    assert RetentionStore(tmp_path, 1 << 30).keep(place, sha256, given.data)

    def judge(facts: SubmissionFacts, data: bytes | None, *_: object) -> Verdict:
        judged.append(data)
        return verdict_on(facts, world.CONFIG, Code.ACCEPT, {})

    def verdict() -> Verdict:
        sources, kept = Sources(objects), RetentionStore(tmp_path, 1 << 30)  # type: ignore[arg-type]
        loaded = LoadedEngine(Any)  # type: ignore[arg-type]
        return WeightlessJudge(world.CONFIG, loaded, sources, lambda _: tmp_path, None, kept, judge).verdict(facts)

    assert verdict().code is Code.ACCEPT
    assert judged == [given.data]
    (path,) = tmp_path.iterdir()
    path.write_bytes(b"a fault of the disk")
    with pytest.raises(UnreachableError):
        verdict()


def test_files_of_a_node_case_take_no_room(tmp_path: Path) -> None:
    """Hundreds of them would have our committees' seats answer `unavailable` for want of it, and final ones need not be
    shown to anybody."""
    given = world.context()
    objects: Any = lambda key, limit: given.data  # noqa: E731

    def judge(facts: SubmissionFacts, data: bytes | None, *_: object) -> Verdict:
        return verdict_on(facts, world.CONFIG, Code.ACCEPT, {})

    def kept(as_worker: bool) -> int:
        files = RetentionStore(tmp_path / str(as_worker), 1 << 30)
        loaded = LoadedEngine(engine("hf"))
        judging = WeightlessJudge(world.CONFIG, loaded, Sources(objects), lambda _: tmp_path, None, files, judge)
        assert judging.verdict(given.facts, as_worker=as_worker).code is Code.ACCEPT
        return len(files.files)

    assert kept(False) == 1
    assert kept(True) == 0
