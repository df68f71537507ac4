"""Verifies an export against the chain. Rows carry all that this takes: the bucket is not needed.

Everything in the folder comes from a stranger. Only the chain is trusted, by the reader's own deployment file and RPC.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from chain.rpc import Block
from dataset.document import (
    CARD,
    CONFIG,
    DATA,
    DOCUMENT,
    MANIFESTS,
    TOKENIZER,
    DatasetDocument,
    Format,
    StoredDataset,
    card,
    formats,
)
from dataset.export import (
    MAX_CONFIG_BYTES,
    AcceptedFile,
    PoolOnChain,
    Texts,
    accepted_files,
    chain_columns,
    finality_follows_clock,
    shown_model,
    tokenizer_problem,
)
from dataset.rows import DatasetRow, RowTally, check_bytes, read_rows
from protocol.config import PoolConfig
from protocol.encoding import keccak
from protocol.errors import IntegrityError, MusterError, printable
from protocol.files import read_bounded
from protocol.identity import PoolId
from protocol.models import load_tokenizer
from protocol.rollout_file.rows import Limits
from storage.weights.manifest import MAX_STORED_BYTES, unseal

_MESSAGES_EACH = 5


@dataclass
class DatasetFindings:
    """What a verification found wrong. `messages`: sentences, at most five of a kind, in the order in which they were
    found; `count`: of all."""

    messages: list[str] = field(default_factory=list)
    count: int = 0
    _kinds: dict[str, int] = field(default_factory=dict)

    def add(self, kind: str, what: str) -> None:
        """Count a finding, and describe it if it is one of the first of its kind."""
        self.count += 1
        seen = self._kinds[kind] = self._kinds.get(kind, 0) + 1
        if seen <= _MESSAGES_EACH:
            self.messages.append(printable(what, 400))

    def of(self, kind: str) -> int:
        """Return how many findings of this kind there are."""
        return self._kinds.get(kind, 0)


ALTERED, ADDED, MISSING, REORDERED = "altered", "added", "missing", "reordered"


class RowChecks:
    """Compares the rows of one format with the chain: each by itself, and all of them as a set and in their order.

    `files`: what was accepted for good, by sequence; `refused`: why other submissions are not; `samples`: rows per
    problem. Memory: one bit for every row of a file that was seen.
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
        """Check the row at `where`."""
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
            self._findings.add(ADDED, f"{named} appears twice")
            return
        seen[row.row >> 3] |= bit
        if row.place < self._last:
            before = "submission {}, row {}".format(*self._last)
            self._findings.add(REORDERED, f"{named} comes after {before}")
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
        """Add, after the last row, what is missing of the `wanted` files, and of files of which some rows were seen."""
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
    """Return the root that a leaf and its siblings lead to."""
    node = leaf
    for text in siblings:
        sibling = bytes.fromhex(text)
        node = keccak(node + sibling if node <= sibling else sibling + node)
    return node


_MAX_DOCUMENT_BYTES = 16 << 20
_ENTRIES = {DOCUMENT, CARD, CONFIG, DATA, MANIFESTS, TOKENIZER}


@dataclass(frozen=True)
class Verification:
    """The outcome. `rows`: checked, of every format; `newer`: submissions accepted for good since the export."""

    document: DatasetDocument
    signer: str
    rows: int
    newer: int
    findings: DatasetFindings

    @property
    def sound(self) -> bool:
        return not self.findings.count


def load(folder: Path) -> StoredDataset:
    """Read `dataset.json`. Raises ConfigError where there is none, IntegrityError for a damaged one."""
    path = folder / DOCUMENT
    return StoredDataset.parse(read_bounded(path, _MAX_DOCUMENT_BYTES), str(path))


def verify(folder: Path, stored: StoredDataset, source: PoolOnChain, as_of: Block | None) -> Verification:
    """Compare an export with the chain. `as_of`: the chain's block of the number that the export names."""
    verifier = _Verifier(folder, stored.dataset, source, as_of)
    verifier.run()
    return Verification(stored.dataset, stored.signer, verifier.rows, verifier.newer, verifier.findings)


def deployment_mismatch(document: DatasetDocument, chain_id: int, genesis: str, contracts: dict[str, str]) -> str:
    """Return why a data set is not of this deployment, or an empty string."""
    if document.chain_id != chain_id:
        return f"the data set is of chain {document.chain_id}, the deployment of chain {chain_id}"
    if document.genesis != genesis.removeprefix("0x"):
        return f"the data set is of another chain with the id {chain_id}: its first block differs"
    if document.contracts != contracts:
        return "the data set is of other contracts than the deployment's"
    return ""


class _Verifier:
    def __init__(self, folder: Path, document: DatasetDocument, source: PoolOnChain, as_of: Block | None) -> None:
        self.folder, self.document, self.source, self.as_of = folder, document, source, as_of
        self.findings, self.rows, self.newer = DatasetFindings(), 0, 0

    def run(self) -> None:
        source, document = self.source, self.document
        wrong = deployment_mismatch(document, source.pool_id.chain_id, source.genesis, source.contracts)
        if not wrong and document.pool not in source.state.pools:
            wrong = f"the chain has no pool {document.pool}"
        if wrong:
            self._add("chain", wrong)
            return
        self._check_block()
        self._check_entries()
        config = self._config()
        if config is None:
            return
        self._check_words(config)
        self._check_rows(config, self._texts(config))
        self._check_card()

    def _add(self, kind: str, what: str) -> None:
        self.findings.add(kind, what)

    def _check_block(self) -> None:
        document, found = self.document.as_of, self.as_of
        if found is None or (found.hash.hex(), found.time) != (document.hash, document.time):
            self._add("block", f"block {document.block} of the chain is not the one that {DOCUMENT} names")
        if self.document.owner != self.source.scope.owner:
            self._add("document", f"{DOCUMENT}: `owner` is not the pool's")

    def _check_entries(self) -> None:
        """Files that nothing names, and named ones that are damaged."""
        named = {file.path for file in self.document.files}
        present = {path.name for path in self.folder.iterdir()}
        for name in sorted(present - _ENTRIES):
            self._add("files", f"{name} does not belong into the folder")
        data = self.folder / DATA
        for path in sorted(data.iterdir()) if data.is_dir() else []:
            if f"{DATA}/{path.name}" not in named:
                self._add("files", f"{DATA}/{path.name} is not named in {DOCUMENT}")
        for file in self.document.files:
            wrong = check_bytes(self.folder / file.path, file)
            if wrong:
                self._add("files", f"{file.path}: {wrong}")

    def _config(self) -> PoolConfig | None:
        pool = self.source.state.pools[self.document.pool]
        try:
            data = read_bounded(self.folder / CONFIG, MAX_CONFIG_BYTES)
            if hashlib.sha256(data).digest() != pool.config_hash:
                raise IntegrityError(f"{CONFIG} is not the configuration whose hash is on chain", "")
            return PoolConfig.parse(data, CONFIG)
        except MusterError as error:
            self._add("config", error.what)
            return None

    def _check_words(self, config: PoolConfig) -> None:
        """What the document says that follows from configuration and chain."""
        steps = self.source.state.pools[self.document.pool].steps
        document = self.document
        expected = {
            "name": config.name,
            "model": shown_model(config.model.source),
            "dtype": config.model.dtype,
            "config_hash": config.digest.hex(),
        }
        for name, value in expected.items():
            if getattr(document, name) != value:
                self._add("document", f"{DOCUMENT}: `{name}` is not what the pool's configuration says")
        if document.licences.model != config.model.license:
            self._add("document", f"{DOCUMENT}: the model's licence is not what the pool's configuration says")
        for step, digest in document.manifests.items():
            if int(step) >= len(steps) or steps[int(step)].manifest.hex() != digest:
                self._add("document", f"{DOCUMENT}: the manifest of policy step {step} is not the one on chain")

    def _texts(self, config: PoolConfig) -> Texts | None:
        """The tokenizer, if it is the one of every manifest: otherwise texts cannot be looked at."""
        before = self.findings.count
        for step, digest in self.document.manifests.items():
            path = self.folder / MANIFESTS / f"{digest}.json"
            try:
                manifest = unseal(read_bounded(path, MAX_STORED_BYTES), bytes.fromhex(digest), self.source.scope)
                wrong = tokenizer_problem(self.folder / TOKENIZER, manifest)
                if wrong:
                    self._add("tokenizer", f"{TOKENIZER}: {wrong}")
            except MusterError as error:
                self._add("tokenizer", f"{MANIFESTS}/{digest[:16]}… of policy step {step}: {error.what}")
        if self.findings.count > before:
            return None
        try:
            return Texts(config, load_tokenizer(self.folder / TOKENIZER))
        except MusterError as error:
            self._add("tokenizer", error.what)
            return None

    def _check_rows(self, config: PoolConfig, texts: Texts | None) -> None:
        state, pool, time = self.source.state, self.document.pool, self.document.as_of.time
        now = self.source.block.time
        every = {file.submission.sequence: file for file in accepted_files(state, pool, now)}
        then = {file.submission.sequence: file for file in accepted_files(state, pool, time)}
        wanted = {sequence: file for sequence, file in then.items() if finality_follows_clock(state, file)}
        self.newer = len(every.keys() - then.keys())
        refused = {
            sub.sequence: f"which is {sub.status.value}" + (" but was not final then" if sub.is_paid else "")
            for sub in state.submissions_of(pool)
            if sub.sequence not in then
        }
        for kind in formats(self.document) or ["parquet"]:
            checks = RowChecks(
                self.findings, self.source.pool_id, then, refused, texts, config.work.samples_per_problem
            )
            tally = RowTally()
            self._read(kind, Limits.of(config.work), checks, tally)
            checks.end(kind, wanted)
            if tally.totals() != self.document.totals:
                self._add("totals", f"{DOCUMENT}: `totals` are not those of the rows in {kind}")

    def _read(self, kind: Format, limits: Limits, checks: RowChecks, tally: RowTally) -> None:
        """All rows of one format."""
        line_bytes = 8 * limits.row_bytes + 65536
        for file in self.document.files:
            if file.format != kind or not (self.folder / file.path).is_file():
                continue
            count = 0
            try:
                for row in read_rows(self.folder / file.path, kind, line_bytes):
                    checks.row(f"{file.path}, row {count}", row)
                    if not isinstance(row, IntegrityError):
                        tally.add(row)
                    count += 1
            except MusterError as error:
                self._add("files", error.what)
            self.rows += count
            if count != file.rows:
                self._add("files", f"{file.path} has {count} rows, {DOCUMENT} says {file.rows}")

    def _check_card(self) -> None:
        try:
            found = read_bounded(self.folder / CARD, 1 << 20)
        except MusterError as error:
            self._add("card", error.what)
            return
        expected = card(self.document).encode()
        if found == expected:
            return
        lines = zip(found.decode("utf-8", "replace").splitlines(), expected.decode().splitlines(), strict=False)
        first = next((number for number, (one, other) in enumerate(lines, 1) if one != other), 0)
        where = f"line {first}" if first else "its end"
        self._add("card", f"{CARD}: {where} is not what {DOCUMENT} says")
