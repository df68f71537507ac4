"""Verifies an export against the chain. Rows carry all that this takes: the bucket is not needed. Everything in the
folder comes from a stranger; only the chain is trusted, by the reader's own deployment file and RPC."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from chain.indexer.records import Submission
from chain.rpc import Block
from dataset.document import CARD, CONFIG, DATA, DOCUMENT, MANIFESTS, TOKENIZER, DatasetDocument, StoredDataset, card
from dataset.export import MAX_CONFIG_BYTES, PoolOnChain, Texts, chain_columns, public_model_name, tokenizer_problem
from dataset.rows import DatasetRow, RowTally, check_bytes, read_rows
from protocol.config import PoolConfig
from protocol.encoding import keccak
from protocol.errors import IntegrityError, MusterError, printable
from protocol.files import read_bounded
from protocol.models import load_tokenizer
from storage.weights.manifest import MAX_STORED_BYTES, unseal

_MESSAGES_EACH = 5
_MAX_DOCUMENT_BYTES = 16 << 20
_ENTRIES = {DOCUMENT, CARD, CONFIG, DATA, MANIFESTS, TOKENIZER}


@dataclass
class DatasetFindings:
    """What a verification found wrong. `messages`: at most five of a kind, in order; `count`: of all."""

    messages: list[str] = field(default_factory=list)
    count: int = 0
    _kinds: Counter[str] = field(default_factory=Counter)

    def add(self, kind: str, what: str) -> None:
        """Count a finding, and describe it if it is one of the first of its kind."""
        self.count += 1
        self._kinds[kind] += 1
        if self._kinds[kind] <= _MESSAGES_EACH:
            self.messages.append(printable(what, 400))


@dataclass
class Verification:
    """The outcome. `rows`: checked; `newer`: submissions accepted for good since the export."""

    document: DatasetDocument
    signer: str
    rows: int = 0
    newer: int = 0
    findings: DatasetFindings = field(default_factory=DatasetFindings)

    @property
    def sound(self) -> bool:
        return not self.findings.count


def load(folder: Path) -> StoredDataset:
    """Read `dataset.json`. Raises ConfigError where there is none, IntegrityError for a damaged one."""
    path = folder / DOCUMENT
    return StoredDataset.parse(read_bounded(path, _MAX_DOCUMENT_BYTES), str(path))


def verify(folder: Path, stored: StoredDataset, source: PoolOnChain, as_of: Block | None) -> Verification:
    """Compare an export with the chain. `as_of`: the chain's block of the number that the export names."""
    document = stored.dataset
    outcome = Verification(document, stored.signer)
    findings = outcome.findings
    if wrong := _other_chain(document, source):
        findings.add("chain", wrong)
        return outcome
    if as_of is None or (as_of.hash.hex(), as_of.time) != (document.as_of.hash, document.as_of.time):
        findings.add("block", f"block {document.as_of.block} of the chain is not the one that {DOCUMENT} names")
    _check_entries(folder, document, findings)
    try:
        data = read_bounded(folder / CONFIG, MAX_CONFIG_BYTES)
        if hashlib.sha256(data).digest() != source.state.pools[document.pool].config_hash:
            raise IntegrityError(f"{CONFIG} is not the configuration whose hash is on chain", "")
        config = PoolConfig.parse(data, CONFIG)
    except MusterError as error:
        findings.add("config", error.what)
        return outcome
    _check_document(document, config, source, findings)
    _check_rows(folder, outcome, config, source, _texts(folder, document, config, source, findings))
    _check_card(folder, document, findings)
    return outcome


def _other_chain(document: DatasetDocument, source: PoolOnChain) -> str:
    """Return why a data set is not of this deployment, or an empty string."""
    chain_id = source.pool_id.chain_id
    if document.chain_id != chain_id:
        return f"the data set is from chain {document.chain_id}, the deployment from chain {chain_id}"
    if document.genesis != source.genesis.removeprefix("0x"):
        return f"the data set is from another chain with the id {chain_id}: its first block differs"
    if document.contracts != source.contracts:
        return "the data set is from other contracts than the deployment's"
    return "" if document.pool in source.state.pools else f"the chain has no pool {document.pool}"


def _check_entries(folder: Path, document: DatasetDocument, findings: DatasetFindings) -> None:
    """Find files that nothing names, and named ones that are damaged."""
    for name in sorted({path.name for path in folder.iterdir()} - _ENTRIES):
        findings.add("files", f"{name} does not belong into the folder")
    named, data = {file.path for file in document.files}, folder / DATA
    for path in sorted(data.iterdir()) if data.is_dir() else []:
        if f"{DATA}/{path.name}" not in named:
            findings.add("files", f"{DATA}/{path.name} is not named in {DOCUMENT}")
    for file in document.files:
        if wrong := check_bytes(folder / file.path, file):
            findings.add("files", f"{file.path}: {wrong}")


def _check_document(
    document: DatasetDocument, config: PoolConfig, source: PoolOnChain, findings: DatasetFindings
) -> None:
    """Compare what follows from configuration and chain."""
    steps = source.state.pools[document.pool].steps
    if document.owner != source.scope.owner:
        findings.add("document", f"{DOCUMENT}: `owner` is not the pool's")
    for name, shown, expected in (
        ("`name`", document.name, config.name),
        ("`model`", document.model, public_model_name(config.model.source)),
        ("`dtype`", document.dtype, config.model.dtype),
        ("`config_hash`", document.config_hash, config.digest.hex()),
        ("the model's licence", document.licences.model, config.model.license),
    ):
        if shown != expected:
            findings.add("document", f"{DOCUMENT}: {name} is not what the pool's configuration says")
    for step, digest in document.manifests.items():
        if int(step) >= len(steps) or steps[int(step)].manifest.hex() != digest:
            findings.add("document", f"{DOCUMENT}: the manifest of policy step {step} is not the one on chain")


def _texts(
    folder: Path, document: DatasetDocument, config: PoolConfig, source: PoolOnChain, findings: DatasetFindings
) -> Texts | None:
    """Load the tokenizer, if it is the one of every manifest: otherwise texts cannot be checked."""
    before = findings.count
    for step, digest in document.manifests.items():
        try:
            stored = read_bounded(folder / MANIFESTS / f"{digest}.json", MAX_STORED_BYTES)
            manifest = unseal(stored, bytes.fromhex(digest), source.scope)
            if wrong := tokenizer_problem(folder / TOKENIZER, manifest):
                findings.add("tokenizer", f"{TOKENIZER}: {wrong}")
        except MusterError as error:
            findings.add("tokenizer", f"{MANIFESTS}/{digest[:16]}… of policy step {step}: {error.what}")
    try:
        return Texts(config, load_tokenizer(folder / TOKENIZER)) if findings.count == before else None
    except MusterError as error:
        findings.add("tokenizer", error.what)
        return None


def _check_rows(
    folder: Path, outcome: Verification, config: PoolConfig, source: PoolOnChain, texts: Texts | None
) -> None:
    state, document, findings = source.state, outcome.document, outcome.findings
    then = source.accepted(document.as_of.time)
    outcome.newer = len(source.accepted(source.block.time).keys() - then.keys())
    refused = {
        sub.sequence: f"which is {sub.status.value}" + (" but was not final then" if sub.is_paid else "")
        for sub in state.submissions_of(document.pool)
        if sub.sequence not in then
    }
    checks = _RowChecks(source, then, refused, texts, config.work.samples_per_problem, findings)
    tally = RowTally()
    for file in document.files:
        if not (folder / file.path).is_file():
            continue
        count = 0
        try:
            for row in read_rows(folder / file.path):
                checks.check(f"{file.path}, row {count}", row)
                if not isinstance(row, IntegrityError):
                    tally.add(row)
                count += 1
        except MusterError as error:
            findings.add("files", error.what)
        outcome.rows += count
        if count != file.rows:
            findings.add("files", f"{file.path} has {count} rows, {DOCUMENT} says {file.rows}")
    checks.end()
    if tally.totals() != document.totals:
        findings.add("totals", f"{DOCUMENT}: `totals` are not those of the rows")


class _RowChecks:
    """Compares rows with the chain: each by itself, and all of them as a set and in their order. `files`: what was
    accepted for good, by sequence; `refused`: why other submissions are not; `samples`: rows per problem. Memory: one
    byte for every row of a file that was seen."""

    def __init__(
        self,
        source: PoolOnChain,
        files: Mapping[int, Submission],
        refused: Mapping[int, str],
        texts: Texts | None,
        samples: int,
        findings: DatasetFindings,
    ) -> None:
        self._source, self._files, self._refused = source, files, refused
        self._texts, self._samples, self._findings = texts, samples, findings
        self._expected = {sequence: chain_columns(source, sub) for sequence, sub in files.items()}
        self._seen: dict[int, bytearray] = {}
        self._last = (-1, -1)

    def check(self, where: str, row: DatasetRow | IntegrityError) -> None:
        """Check the row at `where`."""
        add = self._findings.add
        if isinstance(row, IntegrityError):
            add("altered", f"{where}: {row.what}")
            return
        if row.submission not in self._files:
            why = self._refused.get(row.submission, "which the pool does not have")
            add("added", f"{where} belongs to submission {row.submission}, {why}")
            return
        named = f"{where} (submission {row.submission}, row {row.row})"
        rows = self._files[row.submission].rows
        if row.row >= rows:
            add("added", f"{named}: the file has {rows} rows")
            return
        seen_rows = self._seen.setdefault(row.submission, bytearray(rows))
        if seen_rows[row.row]:
            add("added", f"{named} appears twice")
        else:
            seen_rows[row.row] = True
            if row.order_key < self._last:
                add("reordered", f"{named} comes after submission {self._last[0]}, row {self._last[1]}")
            self._last = max(self._last, row.order_key)
        if wrong := self._wrong(row):
            add("altered", f"{named}: {wrong}")

    def _wrong(self, row: DatasetRow) -> str:
        """Return what is wrong with a row of an accepted file, or an empty string."""
        for name, expected in self._expected[row.submission].items():
            if getattr(row, name) != expected:
                return f"`{name}` is not what the chain says"
        try:
            leaf = row.computed_leaf()
        except IntegrityError as error:
            return error.what
        if leaf.hex() != row.leaf:
            return "its content is not the one of its leaf"
        node = leaf
        for sibling in map(bytes.fromhex, row.siblings):
            node = keccak(node + sibling if node <= sibling else sibling + node)
        if node.hex() != row.file_root:
            return "its leaf does not lead to the root on chain"
        # The tree sorts its pairs and says nothing of places: the row's own numbers do.
        if (row.slot, row.sample) != divmod(row.row, self._samples):
            return f"it is (slot {row.slot}, sample {row.sample}), which is another row of the file"
        if self._texts is None:
            return ""
        if row.prompt != self._texts.prompt(row.prompt_tokens):
            return "`prompt` is not the text of its tokens"
        if row.completion != self._texts.completion(row.output_tokens, row.finish):
            return "`completion` is not the text of its tokens"
        if (row.environment, row.problem) != self._texts.problem(row.problem_seed):
            return "`environment` or `problem` is not what its problem seed stands for"
        return ""

    def end(self) -> None:
        """Find what is missing, after the last row: of files that are final by the clock alone, and of files of which
        some rows were seen. The state does not keep when a dispute or a canary's trial ended."""
        state, pool = self._source.state, self._source.pool_id.pool
        doubtful = {sequence for number, sequence in (*state.disputes, *state.canaries) if number == pool}
        for sequence in sorted((self._files.keys() - doubtful) | self._seen.keys()):
            seen_rows = self._seen.get(sequence) or bytearray(self._files[sequence].rows)
            if missing := [row for row, present in enumerate(seen_rows) if not present]:
                which = f"row {missing[0]} and {len(missing) - 1} more" if len(missing) > 1 else f"row {missing[0]}"
                verb = "are" if len(missing) > 1 else "is"
                self._findings.add("missing", f"{which} of submission {sequence} {verb} missing")


def _check_card(folder: Path, document: DatasetDocument, findings: DatasetFindings) -> None:
    try:
        actual, expected = read_bounded(folder / CARD, 1 << 20), card(document)
    except MusterError as error:
        findings.add("card", error.what)
        return
    if actual != expected.encode():
        lines = zip(actual.decode("utf-8", "replace").splitlines(), expected.splitlines(), strict=False)
        wrong = (f"line {number}" for number, (ours, other) in enumerate(lines, 1) if ours != other)
        findings.add("card", f"{CARD}: {next(wrong, 'its end')} is not what {DOCUMENT} says")
