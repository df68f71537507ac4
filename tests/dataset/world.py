"""A pool whose files were judged on a real chain, with its bucket on a real S3 server."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chain.indexer.records import Submission
from dataset.document import DATA, StoredDataset
from dataset.export import PoolOnChain, export
from dataset.rows import DatasetRow, RowTally, RowWriter, read_rows
from dataset.verify import Verification, load, verify
from protocol.accounts import LocalAccount
from protocol.config import PoolConfig
from protocol.identity import PoolId, WorkId
from protocol.rollout_file.file import write
from protocol.rollout_file.rows import Commitment, RolloutHeader, commit
from protocol.seeds import Work
from protocol.verdict import Code
from storage.keys import object_key
from storage.s3 import Bucket
from storage.weights.manifest import ManifestScope
from tests.chain.game import Game, WorkItem, begin
from tests.conftest import Chain, deploy_on
from tests.localnet.services.running import ServiceProcess, running, settings_of
from tests.storage.weights.folders import publish
from tests.validator.world import CONFIG, rollouts, tokenizer_folder


@dataclass
class JudgedPool:
    """A pool on a real chain, with its bucket."""

    game: Game
    bucket: Bucket

    @property
    def pool_id(self) -> PoolId:
        return PoolId(self.game.suite.client.chain_id, self.game.suite.pools.address, self.game.pool)

    @property
    def source(self) -> PoolOnChain:
        deployment, state = self.game.deployed.deployment, self.game.state
        contracts = {name: placed.address for name, placed in deployment.contracts.items()}
        block = self.game.suite.client.block(state.head)
        assert block
        return PoolOnChain(state, self.pool_id, deployment.genesis, contracts, block)

    def publish_folder(self, folder: Path, step: int, parent: bytes | None) -> bytes:
        """Publish a policy step; returns its manifest's digest."""
        scope = ManifestScope(self.pool_id, self.game.owner.address)
        made = publish(folder, self.bucket, scope, step, parent, self.game.owner)
        seed_block = self.game.suite.pools.publish_step(self.game.pool, step, made.digest, bytes(32)).send()
        self.game.mine_to(seed_block + 1)
        return made.digest

    def work(self, node: LocalAccount, step: int) -> Work:
        """The node's next file of a policy step."""
        state = self.game.state
        published = state.pools[self.game.pool].steps[step]
        seed = self.game.suite.step_seed(self.game.pool, published)
        assert seed
        counter = state.accounts[self.game.pool, node.address].counter
        return Work(WorkId(self.pool_id, node.address, step, counter), seed, published.manifest)

    def hand_in(self, node: LocalAccount, step: int, data: bytes, made: Commitment) -> Submission:
        """A file on chain and in the bucket."""
        self.bucket.put(object_key("rollouts", made.sha256), data)
        return self.game.submit(node, step, WorkItem(made.root, made.sha256, made.units, made.rows))


@contextmanager
def contracts_and_bucket(folder: Path, config: PoolConfig) -> Iterator[tuple[Game, Bucket]]:
    """A pool of that configuration on a chain and its bucket on an S3 server, both of its own."""
    chain = Chain().start()
    try:
        with running(ServiceProcess("s3", folder / "swift")) as service:
            deployed = deploy_on(chain, folder / "suite")
            yield begin(deployed, folder, configHash=config.digest), Bucket(settings_of(service))
    finally:
        chain.kill()


@dataclass
class SoldWork(JudgedPool):
    """A pool that has published step 0, the model `folder`; `submitted`: sequence of every file."""

    config: PoolConfig = CONFIG
    folder: Path = field(default_factory=tokenizer_folder)
    submitted: list[int] = field(default_factory=list)

    def begin(self) -> None:
        self.bucket.put(object_key("configs", self.config.digest), self.config.canonical())
        self.publish_folder(self.folder, 0, None)

    def submit(self, node: LocalAccount, seed: int, step: int = 0) -> int:
        """A file of the node's, in the bucket and on chain; returns its lane."""
        sub = self.hand_in(node, step, *self.file(self.work(node, step), seed))
        self.submitted.append(sub.sequence)
        return sub.lane

    def file(self, work: Work, seed: int) -> tuple[bytes, Commitment]:
        """The file that a node hands in: made up, the same for a seed."""
        rows = rollouts(work, seed)
        data = write(RolloutHeader(work, "hf 1", "float32", "cpu"), rows)
        return data, commit(data, rows)

    def judge(self, lane: int, *codes: Code) -> None:
        """Votes on the files of a lane, in order."""
        self.game.vote(lane, dict(enumerate(map(int, codes))))

    def export(self, out: Path, **options: Any) -> StoredDataset:
        return export(self.source, self.bucket.get, out, **options)

    def verify(self, folder: Path, source: PoolOnChain | None = None) -> Verification:
        stored, source = load(folder), source or self.source
        block = self.game.suite.client.block(stored.dataset.as_of.block)
        return verify(folder, stored, source, block)


Change = Callable[[list[DatasetRow]], list[DatasetRow]]


def rows_of(folder: Path) -> list[DatasetRow]:
    rows = [row for file in load(folder).dataset.files for row in read_rows(folder / file.path)]
    assert all(isinstance(row, DatasetRow) for row in rows)
    return rows  # type: ignore[return-value]


def forged(folder: Path, out: Path, change: Change) -> Path:
    """A copy of an export with other rows, whose hashes, totals and card all fit them: what a careful forger leaves."""
    shutil.copytree(folder, out, ignore=shutil.ignore_patterns(DATA))
    rows, tally = change(rows_of(folder)), RowTally()
    with RowWriter(out) as writer:
        for row in rows:
            writer.add(row)
            tally.add(row)
        files = writer.finish()
    restate(out, files=files, totals=tally.totals())
    return out


def restate(folder: Path, **changes: Any) -> None:
    """Write an export's document with these changes, and the card that follows."""
    StoredDataset.of(load(folder).dataset.model_copy(update=changes), None).write(folder)
