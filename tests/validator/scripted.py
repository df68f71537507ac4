"""Judges that need no model, and the parts around them, for tests of what surrounds the checks."""

import threading
from pathlib import Path
from typing import Any

from protocol.errors import MusterError
from protocol.verdict import Code, Verdict
from tests.validator import tiny
from validator.judging.checks import SubmissionFacts, verdict_on
from validator.judging.pipeline import FileJudge, LoadedEngine
from validator.judging.sources import Sources
from validator.judging.verdicts import VerdictStore
from validator.retention import RetentionStore


class ScriptedObjects:
    """Objects that fail in a given way some times, then are there; those of `withheld` (by SHA-256) in ways of their
    own."""

    def __init__(self, failures: list[MusterError] | None = None) -> None:
        self.failures, self.withheld = failures or [], dict[bytes, list[MusterError]]()

    def __call__(self, key: str, limit: int) -> bytes:
        own = next((failures for sha256, failures in self.withheld.items() if sha256.hex() in key), [])
        if failures := own or self.failures:
            raise failures.pop(0)
        return b"bytes"


class ScriptedJudge:
    """Accepts whatever is there, and remembers what it was given; `gate`, if closed, makes it wait."""

    def __init__(self) -> None:
        self.sequences: list[int] = []
        self.data: list[bytes | None] = []
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, facts: SubmissionFacts, data: bytes | None, *_: object) -> Verdict:
        self.sequences.append(facts.sequence)
        self.data.append(data)
        assert self.gate.wait(20)
        return verdict_on(facts, tiny.CONFIG.digest, Code.ACCEPT if data else Code.UNAVAILABLE, {})


class ModelFreeJudge(FileJudge):
    """Needs no weights."""

    def _load(self, *_: object) -> Any:
        return None


def judge_of(
    folder: Path, objects: ScriptedObjects, judge: ScriptedJudge, files: RetentionStore | None = None
) -> FileJudge:
    """A judge of files that keeps its verdicts in `folder`, and the files in `files`."""
    engine, sources = LoadedEngine(tiny.engine(1)), Sources(objects)  # type: ignore[arg-type]
    verdicts = VerdictStore(folder)
    return FileJudge(tiny.CONFIG, engine, sources, lambda _: tiny.model_folder(), verdicts, files, judge)
