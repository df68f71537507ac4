"""Compares the rows of one format with the chain: each by itself, and all of them as a set and in their order."""

from collections.abc import Mapping

from dataset.accepted import AcceptedFile
from dataset.export import chain_columns
from dataset.findings import DatasetFindings
from dataset.row import DatasetRow
from dataset.texts import Texts
from protocol.errors import IntegrityError
from protocol.identity import PoolId
from protocol.keccak import keccak

ALTERED, ADDED, MISSING, REORDERED = "altered", "added", "missing", "reordered"


class RowChecks:
    """Told of every row in turn. `files`: what was accepted for good, by sequence; `samples`: rows to a problem.

    Memory: one bit for every row of a file that was seen.
    """

    def __init__(
        self,
        findings: DatasetFindings,
        pool_id: PoolId,
        files: Mapping[int, AcceptedFile],
        refused: Mapping[int, str],
        texts: Texts | None,
        samples: int,
    ) -> None:
        self._findings, self._texts, self._samples = findings, texts, samples
        self._files, self._refused = files, refused
        self._expected = {sequence: chain_columns(pool_id, file) for sequence, file in files.items()}
        self._seen: dict[int, bytearray] = {}
        self._last = (-1, -1)

    def row(self, where: str, row: DatasetRow | IntegrityError) -> None:
        """Look at the row that stands at `where`."""
        if isinstance(row, IntegrityError):
            self._findings.add(ALTERED, f"{where}: {row.what}")
            return
        file = self._files.get(row.submission)
        if file is None:
            why = self._refused.get(row.submission, "which the pool has not")
            self._findings.add(ADDED, f"{where} is of submission {row.submission}, {why}")
            return
        named = f"{where} (submission {row.submission}, row {row.row})"
        if row.row >= file.submission.rows:
            self._findings.add(ADDED, f"{named}: the file has {file.submission.rows} rows")
            return
        self._check_place(named, row, file)
        wrong = self._wrong(row)
        if wrong:
            self._findings.add(ALTERED, f"{named}: {wrong}")

    def _check_place(self, named: str, row: DatasetRow, file: AcceptedFile) -> None:
        seen = self._seen.setdefault(row.submission, bytearray(-(-file.submission.rows // 8)))
        bit = 1 << (row.row & 7)
        if seen[row.row >> 3] & bit:
            self._findings.add(ADDED, f"{named} is there twice")
            return
        seen[row.row >> 3] |= bit
        if row.place < self._last:
            before = "submission {}, row {}".format(*self._last)
            self._findings.add(REORDERED, f"{named} stands after {before}")
        self._last = max(self._last, row.place)

    def _wrong(self, row: DatasetRow) -> str:
        """What is wrong with a row of an accepted file, or an empty string."""
        for name, expected in self._expected[row.submission].items():
            if getattr(row, name) != expected:
                return f"`{name}` is not what the chain says"
        try:
            leaf = row.computed_leaf()
        except IntegrityError as error:
            return error.what
        if leaf.hex() != row.leaf:
            return "its content is not the one of its leaf"
        if _climb(leaf, row.siblings).hex() != row.file_root:
            return "its leaf does not lead to the root on chain"
        # The tree sorts its pairs and says nothing of places: the row's own numbers do.
        if (row.slot, row.sample) != divmod(row.row, self._samples):
            return f"it is (slot {row.slot}, sample {row.sample}), which is another row of the file"
        if self._texts is None:
            return ""
        texts = {
            "prompt": self._texts.prompt(row.prompt_tokens),
            "completion": self._texts.completion(row.output_tokens, row.finish),
        }
        texts_wrong = next((name for name, text in texts.items() if getattr(row, name) != text), "")
        if texts_wrong:
            return f"`{texts_wrong}` is not the text of its tokens"
        if (row.environment, row.problem) != self._texts.problem(row.problem_seed):
            return "`environment` or `problem` is not what its problem seed stands for"
        return ""

    def end(self, what: str, wanted: Mapping[int, AcceptedFile]) -> None:
        """After the last row: which rows of the `wanted` files, and of files that are there in part, are missing."""
        for sequence in sorted({*wanted, *self._seen}):
            rows = self._files[sequence].submission.rows
            seen = self._seen.get(sequence, bytearray(-(-rows // 8)))
            gone = [row for row in range(rows) if not seen[row >> 3] & 1 << (row & 7)]
            if gone:
                which = f"row {gone[0]}" + (f" and {len(gone) - 1} more" if len(gone) > 1 else "")
                self._findings.add(MISSING, f"{what}: {which} of submission {sequence} {_verb(gone)} missing")


def _verb(rows: list[int]) -> str:
    return "is" if len(rows) == 1 else "are"


def _climb(leaf: bytes, siblings: tuple[str, ...]) -> bytes:
    """The root that a leaf and its siblings lead to."""
    node = leaf
    for text in siblings:
        sibling = bytes.fromhex(text)
        node = keccak(node + sibling if node <= sibling else sibling + node)
    return node
