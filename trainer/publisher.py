"""Brings policy steps to the bucket and the chain, again after a crash or a reorganisation where needed."""

import logging
from pathlib import Path

from eth_account.signers.local import LocalAccount

from protocol.errors import IntegrityError
from runtime.pool_client import PoolClient
from storage.weights.manifest import ManifestScope
from storage.weights.publish import ObjectWriter, publish
from trainer.canaries import CanaryPlan

log = logging.getLogger("muster.trainer")


class StepPublisher:
    """Publishes as the pool's owner, with each step the root of its canaries."""

    def __init__(
        self, client: PoolClient, bucket: ObjectWriter, account: LocalAccount, dtype: str, canaries: CanaryPlan
    ) -> None:
        self._client, self._bucket, self._account, self._dtype = client, bucket, account, dtype
        self._canaries = canaries
        self._scope = ManifestScope(client.pool_id, str(account.address))

    def upload(self, folder: Path, step: int, parent: bytes | None) -> bytes:
        """Shards and manifest of a policy step into the bucket; returns the manifest's digest."""
        return publish(folder, self._bucket, self._scope, step, parent, self._account, self._dtype).digest

    def ensure(self, manifests: list[bytes]) -> None:
        """Make the chain hold exactly these steps. Raises IntegrityError if it holds others."""
        state = self._client.refresh()
        pool = self._client.pool()
        known = [step.manifest for step in pool.steps] if pool else []
        for step, (ours, theirs) in enumerate(zip(manifests, known, strict=False)):
            if ours != theirs:
                raise IntegrityError(
                    f"policy step {step} on chain is not the one this trainer made",
                    "restore the trainer's home folder, or close the pool",
                )
        for step in range(len(known), len(manifests)):
            root = self._canaries.next_root(state, step)
            seed_block = self._client.suite.pools.ensure_step(self._canaries.pool, step, manifests[step], root)
            log.info("published policy step %d, its seed is block %d", step, seed_block)
