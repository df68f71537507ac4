"""Writes the data set of a pool: every submission that was accepted for good, row by row, from chain and bucket.

The folder is filled aside and renamed into place: it is complete or absent. One submitted file is in memory at a time.
"""

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from chain.indexer.records import Submission
from chain.indexer.state import State
from chain.rpc import Block
from dataset.document import CONFIG, MANIFESTS, TOKENIZER, AsOf, DataFile, DatasetDocument, Licences, StoredDataset
from dataset.rows import ROWS_PER_FILE, DatasetRow, RowTally, RowWriter
from engines.base import FINISH_EOS
from environments.registry import load_environment
from protocol import VERSION
from protocol.accounts import LocalAccount
from protocol.config import PoolConfig, drawn
from protocol.errors import ConfigError, IntegrityError, MusterError
from protocol.files import file_sha256, write_folder
from protocol.identity import PoolId
from protocol.models import TOKENIZER_FILES, Tokenizer, load_tokenizer
from protocol.rollout_file import merkle
from protocol.rollout_file.file import read
from protocol.rollout_file.rows import Commitment, Limits, Rollout, commit, leaves
from protocol.verdict import Code, code_at
from storage.keys import object_key
from storage.weights.fetch import OpenObject
from storage.weights.manifest import MAX_STORED_BYTES, Manifest, ManifestScope, unseal

log = logging.getLogger("muster.dataset")
MAX_CONFIG_BYTES = 1 << 20
_MAX_TOKENIZER_BYTES = 64 << 20


class Texts:
    """Decodes prompts and completions with a pool's tokenizer, and names problems."""

    def __init__(self, config: PoolConfig, tokenizer: Tokenizer) -> None:
        self._config, self._tokenizer, self._size = config, tokenizer, len(tokenizer)

    def prompt(self, tokens: Sequence[int]) -> str:
        """Decode a prompt, with the chat template's own tokens."""
        ids = [token for token in tokens if 0 <= token < self._size]  # padded vocabularies have ids without text
        return self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def completion(self, tokens: Sequence[int], finish: int) -> str:
        """Decode a completion without the EOS that ended it."""
        return self.prompt(tokens[:-1] if finish == FINISH_EOS else tokens)

    def problem(self, problem_seed: int) -> tuple[str, int]:
        """Return the environment that a problem seed falls to, and that environment's own seed of the problem."""
        problem = drawn(self._config.environments, problem_seed)
        return self._config.environments[problem.environment].called, problem.seed


def tokenizer_hashes(manifest: Manifest) -> dict[str, str]:
    """Return the SHA-256 of a policy step's tokenizer files, by name."""
    return {file.name: file.sha256 for file in manifest.files if file.name in TOKENIZER_FILES}


def tokenizer_problem(folder: Path, manifest: Manifest) -> str:
    """Return why a folder is not the tokenizer of a policy step, or an empty string."""
    expected = tokenizer_hashes(manifest)
    if not folder.is_dir():
        return "it is missing"
    for path in sorted(folder.iterdir()):
        if path.is_symlink() or not path.is_file() or path.name not in expected:
            return f"{path.name} does not belong there"
    for name, sha256 in expected.items():
        if not (folder / name).is_file() or file_sha256(folder / name) != sha256:
            return f"{name} is not the one of policy step {manifest.step}"
    return ""


@dataclass(frozen=True)
class PoolOnChain:
    """What an export reads of the chain. `genesis` and the addresses in `contracts` are the deployment's; `block`: the
    last one whose submissions count."""

    state: State
    pool_id: PoolId
    genesis: str
    contracts: dict[str, str]
    block: Block

    @property
    def scope(self) -> ManifestScope:
        return ManifestScope(self.pool_id, self.state.pools[self.pool_id.pool].owner)

    def accepted(self, time: int) -> dict[int, Submission]:
        """Return the files that were accepted for good at chain time `time`, by sequence."""
        return {sub.sequence: sub for sub in self.state.accepted(self.pool_id.pool) if sub.is_final(time)}


def export(
    source: PoolOnChain,
    objects: OpenObject,
    out: Path,
    licence: str = "unknown",
    account: LocalAccount | None = None,
    rows_per_file: int = ROWS_PER_FILE,
    say: Callable[[str], None] = log.info,
) -> StoredDataset:
    """Write the data set to the folder `out`, which must not exist. `objects` opens what is in the pool's bucket;
    `licence`: under which the exporter offers the data; `account` signs `dataset.json`, if given.

    Raises ConfigError if there is nothing to export, IntegrityError if the bucket's bytes are not the chain's, and what
    `objects` raises."""
    if out.exists():
        raise ConfigError(f"{out} exists", "choose another folder, or remove it")
    work, stored = _Export(source, objects, licence, say), list[StoredDataset]()
    write_folder(out, lambda folder: stored.append(work.fill(folder, rows_per_file, account)))
    return stored[0]


class _Export:
    def __init__(self, source: PoolOnChain, objects: OpenObject, licence: str, say: Callable[[str], None]) -> None:
        self._source, self._objects, self._licence, self._say = source, objects, licence, say
        self._pool = source.state.pools[source.pool_id.pool]
        self._files = source.accepted(source.block.time).values()
        if not self._files:
            what = f"no submission of pool {source.pool_id.pool} was accepted for good at block {source.block.number}"
            raise ConfigError(what, "wait until challenge windows are over")
        data = objects(object_key("configs", self._pool.config_hash), MAX_CONFIG_BYTES)
        self._config_bytes, self._config = data, PoolConfig.parse(data, "the pool's configuration document")
        self._limits = Limits.of(self._config.work)
        self._tally = RowTally()

    def fill(self, folder: Path, rows_per_file: int, account: LocalAccount | None) -> StoredDataset:
        (folder / CONFIG).write_bytes(self._config_bytes)
        steps = sorted({sub.step for sub in self._files})
        self._write_manifests(folder, steps)
        texts = Texts(self._config, load_tokenizer(folder / TOKENIZER))
        with RowWriter(folder, rows_per_file) as writer:
            for number, sub in enumerate(self._files, 1):
                for row in self._rows(sub, texts):
                    writer.add(row)
                    self._tally.add(row)
                if number % 100 == 0:
                    self._say(f"{number} of {len(self._files)} files, {self._tally.rows} rows")
            document = self._document(steps, writer.finish())
        return StoredDataset.of(document, account).write(folder)

    def _write_manifests(self, folder: Path, steps: list[int]) -> None:
        """Write the manifests of these steps, and the tokenizer, which has to be the same in all of them."""
        (folder / MANIFESTS).mkdir()
        first: Manifest | None = None
        for step in dict.fromkeys([0, *steps]):  # step 0 is published in full: its shards are there
            digest = self._pool.steps[step].manifest
            stored = self._objects(object_key("manifests", digest), MAX_STORED_BYTES)
            manifest = unseal(stored, digest, self._source.scope)
            first = first or manifest
            if step in steps:
                (folder / MANIFESTS / f"{digest.hex()}.json").write_bytes(stored)
            if tokenizer_hashes(manifest) != tokenizer_hashes(first):
                what = f"policy step {step} has another tokenizer than step 0"
                raise IntegrityError(what, "report it to the pool's owner")
        (folder / TOKENIZER).mkdir()
        for file in (file for file in first.files if file.name in TOKENIZER_FILES) if first else ():
            if file.size > _MAX_TOKENIZER_BYTES:
                raise IntegrityError(f"{file.name} has {file.size} bytes", "report it to the pool's owner")
            data = b"".join(self._objects(shard.key, shard.size) for shard in file.shards)
            if hashlib.sha256(data).hexdigest() != file.sha256:
                raise IntegrityError(f"the shards of {file.name} do not make the manifest's file", "ask another source")
            (folder / TOKENIZER / file.name).write_bytes(data)

    def _rows(self, sub: Submission, texts: Texts) -> Iterator[DatasetRow]:
        """Yield the rows of one submitted file, which has to be the very one that was accepted."""
        data = self._objects(object_key("rollouts", sub.sha256), self._limits.file_bytes)
        _, rollouts = read(data, self._limits)
        if commit(data, rollouts) != Commitment(sub.sha256, sub.root, sub.units, sub.rows):
            raise IntegrityError(f"the file of submission {sub.sequence} is not the one on chain", "ask another source")
        chain, tree = chain_columns(self._source, sub), leaves(rollouts)
        for number, (rollout, leaf, siblings) in enumerate(zip(rollouts, tree, merkle.proofs(tree), strict=True)):
            environment, problem = texts.problem(rollout.problem_seed)
            yield DatasetRow(
                **{field.name: getattr(rollout, field.name) for field in fields(Rollout)},
                **chain,
                environment=environment,
                problem=problem,
                prompt=texts.prompt(rollout.prompt_tokens),
                completion=texts.completion(rollout.output_tokens, rollout.finish),
                row=number,
                leaf=leaf.hex(),
                siblings=tuple(sibling.hex() for sibling in siblings),
            )

    def _document(self, steps: list[int], files: tuple[DataFile, ...]) -> DatasetDocument:
        source, model, block = self._source, self._config.model, self._source.block
        totals, licences = self._tally.totals(), {}
        for environment in self._config.environments:
            try:
                licence = load_environment(environment).declared.licence
            except MusterError as error:
                log.info("the licence of %s is not known here: %s", environment.called, error.what)
                continue
            if environment.called in totals.environments:
                licences[environment.called] = licence
        return DatasetDocument(
            name=self._config.name,
            chain_id=source.pool_id.chain_id,
            genesis=source.genesis.removeprefix("0x"),
            contracts=source.contracts,
            pool=source.pool_id.pool,
            owner=self._pool.owner,
            config_hash=hashlib.sha256(self._config_bytes).hexdigest(),
            as_of=AsOf(block=block.number, hash=block.hash.hex(), time=block.time),
            model=public_model_name(model.source),
            dtype=model.dtype,
            licences=Licences(dataset=self._licence, model=model.license, environments=licences),
            manifests={str(step): self._pool.steps[step].manifest.hex() for step in steps},
            totals=totals,
            files=files,
            muster=VERSION,
        )


def public_model_name(source: str) -> str:
    """Return a model's source without its owner's folders: a path means nothing to anybody else."""
    return source.rstrip("/").rpartition("/")[2] if source.startswith(("/", ".", "~")) else source


def chain_columns(source: PoolOnChain, sub: Submission) -> dict[str, Any]:
    """Return the columns of a row that follow from the chain alone, by name; of the votes those that were opened, of
    every round of the file's lane in order of membership."""
    pool_id, state = source.pool_id, source.state
    reveals = [reveal for turn in state.lane_of(sub).rounds for _, reveal in sorted(turn.reveals.items())]
    votes = [(Code(code), digest) for codes, digest in reveals if (code := code_at(codes, sub.place))]
    return {
        "chain_id": pool_id.chain_id,
        "pools": pool_id.pools,
        "pool": pool_id.pool,
        "policy_step": sub.step,
        "manifest": state.pools[pool_id.pool].steps[sub.step].manifest.hex(),
        "node": sub.node,
        "submission": sub.sequence,
        "counter": sub.counter,
        "verdict": Code(sub.code).label,
        "votes": tuple(code.label for code, _ in votes),
        "verdicts": tuple(digest.hex() for _, digest in votes),
        "file_sha256": sub.sha256.hex(),
        "file_root": sub.root.hex(),
    }
