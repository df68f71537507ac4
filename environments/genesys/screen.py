"""Which rows of a file can be asked and verified: what an owner does with somebody's data before a pool is made of it.

A pool's file has to be right as a whole (environments/genesys/datafile.py); this reads a file that is not, row by row.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from environments.base import Problem
from environments.checking.probe import REFERENCE_FORMS, answers_to
from environments.errors import ScoringUnavailable
from environments.genesys.environment import problem_of, scored
from environments.genesys.parquet import is_parquet, unpack
from environments.genesys.rows import MAX_ROW_BYTES, GenesysRow, read_row
from protocol.encoding import canonical_json
from protocol.errors import IntegrityError, MusterError
from protocol.files import explained

SCHEMA, REPEATED, LONG, UNPROVEN, WRONG, GIVEN = "schema", "repeated", "long", "unproven", "wrong", "given"
REASONS = {
    SCHEMA: "not of the schema, or of a task type that cannot be verified",
    REPEATED: "a problem_id or prompt that an earlier kept row has",
    LONG: "a longer prompt than the pool's",
    UNPROVEN: "without a reference answer",
    WRONG: "a reference answer that is not worth 1",
    GIVEN: "worth 1 for an empty answer, or for its own question",
}


@dataclass(frozen=True)
class Screened:
    """A row as its file has it, without the line's end, and its number from 0. `reason`: one of REASONS, empty where
    the row is kept; `what`: in words."""

    number: int
    line: bytes
    task_type: str
    reason: str
    what: str = ""


class Screen:
    """Told of every row in turn. `is_short`: whether the prompt fits the pool. `proven`: rows need a reference answer.

    Memory: two hashes for every row that is kept.
    """

    def __init__(self, is_short: Callable[[Problem], bool] = lambda problem: True, proven: bool = False) -> None:
        self._is_short, self._proven = is_short, proven
        self._seen: dict[bytes, int] = {}

    def row(self, number: int, line: bytes) -> Screened:
        """Raises ScoringUnavailable where this machine cannot score."""
        try:
            row = read_row(line, f"row {number}")
        except IntegrityError as error:
            return Screened(number, line, "", SCHEMA, error.what)
        reason, what = self._wrong(number, row)
        if not reason:
            self._seen |= dict.fromkeys(_keys(row), number)
        return Screened(number, line, row.task_type, reason, what and f"row {number}: {what}")

    def _wrong(self, number: int, row: GenesysRow) -> tuple[str, str]:
        before = [self._seen[key] for key in _keys(row) if key in self._seen]
        if before:
            return REPEATED, f"row {before[0]} has the same problem_id or prompt"
        problem = problem_of(row, number)
        if not self._is_short(problem):
            return LONG, f"a prompt of {len(row.prompt)} characters is too long"
        answers = answers_to(problem)
        try:
            if any(scored(row.task_type, row.verification_info, text) >= 1 for text in ("", answers["the question"])):
                return GIVEN, "an empty answer, or the question itself, is worth 1"
            if not answers["reference"]:
                return (UNPROVEN, "there is no reference answer") if self._proven else ("", "")
            forms = (answers[name] for name in REFERENCE_FORMS)
            if any(scored(row.task_type, row.verification_info, text) >= 1 for text in forms):
                return "", ""
        except ScoringUnavailable:
            raise
        except (MusterError, ValueError) as error:
            return WRONG, f"it cannot be scored: {error}"
        return WRONG, "the reference answer is not worth 1"


@dataclass(frozen=True)
class ScreenReport:
    """`kept`: rows by task type; `dropped`: by reason."""

    kept: Counter[str]
    dropped: Counter[str]


def screen_file(path: Path, out: Path, refused: Path, checks: Screen, say: Callable[[str], None]) -> ScreenReport:
    """Write the rows of the file at `path` that `checks` keeps to `out`, as they stand there, and to `refused` which
    others there were and why. Raises IntegrityError for a Parquet file that cannot be read, ScoringUnavailable where
    this machine cannot score, ConfigError where it cannot write."""
    report = ScreenReport(Counter(), Counter())
    with ExitStack() as stack, explained(f"read {path} and write {out}", "check the paths and the room on the disk"):
        lines = path
        if is_parquet(path):
            lines = Path(stack.enter_context(TemporaryDirectory())) / "rows"
            unpack(path, lines)
        good, bad = (stack.enter_context(one.open("wb")) for one in (out, refused))
        for number, line in enumerate(_lines(lines)):
            found = checks.row(number, line)
            if found.reason:
                report.dropped[found.reason] += 1
                bad.write(canonical_json({"row": number, "reason": found.reason, "what": found.what}) + b"\n")
            else:
                report.kept[found.task_type] += 1
                good.write(line + b"\n")
            if number % 1000 == 999:
                say(f"{number + 1} rows, {report.kept.total()} kept")
    return report


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a file without their ends; of one that is too long to be a row its beginning."""
    with path.open("rb") as file:
        while line := file.readline(MAX_ROW_BYTES + 2):
            yield line.removesuffix(b"\n")
            if len(line) > MAX_ROW_BYTES + 1 and not line.endswith(b"\n"):
                _skip_line(file)


def _skip_line(file: BinaryIO) -> None:
    while (rest := file.readline(1 << 20)) and not rest.endswith(b"\n"):
        pass


def _keys(row: GenesysRow) -> list[bytes]:
    """What no other row may have: its name, and its prompt whatever the white space."""
    texts = (f"id {row.problem_id}", f"prompt {' '.join(row.prompt.split())}")
    return [hashlib.sha256(text.encode()).digest()[:16] for text in texts]
