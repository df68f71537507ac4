"""Verifies an export against the chain. Rows carry what it takes: the bucket is not needed.

Everything in the folder is a stranger's. What is believed is the chain, by the reader's own deployment file and RPC.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from chain.reader import Block
from dataset.accepted import accepted_files, certain
from dataset.card import card, formats
from dataset.document import CARD, CONFIG, DATA, DOCUMENT, MANIFESTS, TOKENIZER, DatasetDocument, Format, StoredDataset
from dataset.export import MAX_CONFIG_BYTES, PoolOnChain, shown_model
from dataset.findings import DatasetFindings
from dataset.row_checks import RowChecks
from dataset.tables import check_bytes, read_rows
from dataset.tally import RowTally
from dataset.texts import Texts
from dataset.tokenizers import tokenizer_problem
from protocol.config import PoolConfig
from protocol.errors import IntegrityError, MusterError
from protocol.files import read_bounded
from protocol.models.tokenizer import load_tokenizer
from protocol.rollouts.schema import Limits
from storage.weights.manifest import MAX_STORED_BYTES, unseal

_MAX_DOCUMENT_BYTES = 16 << 20
_ENTRIES = {DOCUMENT, CARD, CONFIG, DATA, MANIFESTS, TOKENIZER}


@dataclass(frozen=True)
class Verification:
    """`rows`: looked at in every format; `newer`: submissions that were accepted for good since the export."""

    document: DatasetDocument
    signer: str
    rows: int
    newer: int
    findings: DatasetFindings

    @property
    def sound(self) -> bool:
        return not self.findings.count


def load(folder: Path) -> StoredDataset:
    """What `dataset.json` says. Raises ConfigError where there is none, IntegrityError for one that is not whole."""
    path = folder / DOCUMENT
    return StoredDataset.parse(read_bounded(path, _MAX_DOCUMENT_BYTES), str(path))


def verify(folder: Path, stored: StoredDataset, source: PoolOnChain, as_of: Block | None) -> Verification:
    """Compare an export with the chain. `as_of`: the chain's block of the number that the export names."""
    made = _Verifier(folder, stored.dataset, source, as_of)
    made.run()
    return Verification(stored.dataset, stored.signer, made.rows, made.newer, made.findings)


def elsewhere(document: DatasetDocument, chain_id: int, genesis: str, contracts: dict[str, str]) -> str:
    """Why a data set is not of this deployment, or an empty string."""
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
        wrong = elsewhere(document, source.pool_id.chain_id, source.genesis, source.contracts)
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
        said, found = self.document.as_of, self.as_of
        if found is None or (found.hash.hex(), found.time) != (said.hash, said.time):
            self._add("block", f"block {said.block} of the chain is not the one that {DOCUMENT} names")
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
        said = self.document
        expected = {
            "name": config.name,
            "model": shown_model(config.model.source),
            "dtype": config.model.dtype,
            "config_hash": config.digest.hex(),
        }
        for name, value in expected.items():
            if getattr(said, name) != value:
                self._add("document", f"{DOCUMENT}: `{name}` is not what the pool's configuration says")
        if said.licences.model != config.model.license:
            self._add("document", f"{DOCUMENT}: the model's licence is not what the pool's configuration says")
        for step, digest in said.manifests.items():
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
        wanted = {sequence: file for sequence, file in then.items() if certain(state, file)}
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
