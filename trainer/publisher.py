"""Brings policy steps to the bucket and the chain, again after a crash or a reorganisation where needed."""

import logging
from pathlib import Path

from eth_account.signers.local import LocalAccount

from chain.state import State
from protocol.encoding import tagged_hash
from protocol.errors import IntegrityError
from runtime.pool_client import PoolClient
from storage.bucket import Bucket
from storage.weights.manifest import ManifestScope
from storage.weights.publish import publish
from trainer.canary_tree import StepCanaries, next_counters

log = logging.getLogger("muster.trainer")


class StepPublisher:
    """Publishes as the pool's owner. `carrier`: a node whose next files are planted as canaries with each step."""

    def __init__(self, link: PoolClient, bucket: Bucket, account: LocalAccount, dtype: str, carrier: str = "") -> None:
        self.link, self.bucket, self.account, self.dtype, self.carrier = link, bucket, account, dtype, carrier
        self.pool = link.config.pool
        self.scope = ManifestScope(link.pool_id, str(account.address))
        # The secret must be the same after a restart and known to nobody else: it follows from the owner's key.
        self.secret = tagged_hash("muster/canary-secret/1", bytes(account.key), self.pool)

    def upload(self, folder: Path, step: int, parent: bytes | None) -> bytes:
        """Shards and manifest of a policy step into the bucket; returns the manifest's digest."""
        return publish(folder, self.bucket, self.scope, step, parent, self.account, self.dtype).digest

    def canaries(self, step: int, counter: int) -> StepCanaries:
        """The canary tree of a step that was published when the carrier's next file had this counter."""
        planted = next_counters([(self.carrier, counter)]) if self.carrier else ()
        return StepCanaries(self.secret, self.pool, step, planted)

    def _next_counter(self, state: State) -> int:
        account = state.accounts.get((self.pool, self.carrier))
        return account.counter if account else 0

    def ensure(self, manifests: list[bytes]) -> None:
        """Make the chain hold exactly these steps. Raises IntegrityError if it holds others."""
        state = self.link.refresh()
        pool = self.link.pool()
        known = [step.manifest for step in pool.steps] if pool else []
        for step, (ours, theirs) in enumerate(zip(manifests, known, strict=False)):
            if ours != theirs:
                raise IntegrityError(
                    f"policy step {step} on chain is not the one this trainer made",
                    "restore the trainer's home folder, or close the pool",
                )
        for step in range(len(known), len(manifests)):
            root = self.canaries(step, self._next_counter(state)).root
            seed_block = self.link.suite.pools.ensure_step(self.pool, step, manifests[step], root)
            log.info("published policy step %d, its seed is block %d", step, seed_block)
