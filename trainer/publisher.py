"""Brings policy steps to the bucket and the chain, again after a crash or a reorganisation where needed."""

import logging

from protocol.accounts import LocalAccount
from protocol.config import WeightsConfig
from protocol.errors import IntegrityError
from runtime.pool_client import PoolClient
from storage.bucket import Bucket
from storage.keys import MissingObjectError, object_key
from storage.weights.manifest import MAX_STORED_BYTES, ManifestScope, StepSites, unseal
from storage.weights.publish import send
from storage.weights.shards import weight_files
from trainer.canaries import CanaryPlan
from trainer.deltas import StepEncoder

log = logging.getLogger("muster.trainer")


class StepPublisher:
    """Publishes as the pool's owner, with each step the root of its canaries."""

    def __init__(
        self,
        client: PoolClient,
        bucket: Bucket,
        account: LocalAccount,
        dtype: str,
        weights: WeightsConfig,
        canaries: CanaryPlan,
    ) -> None:
        self._client, self._bucket, self._account, self._canaries = client, bucket, account, canaries
        self._scope = ManifestScope(client.pool_id, str(account.address))
        self.encoder = StepEncoder(bucket.get, self._scope, dtype, weights, client.home / "policies")

    def upload(self, step: int, manifests: list[bytes], made_by: StepSites | None = None) -> bytes:
        """Shards and manifest of a policy step, after the `manifests` of those before it, into the bucket; returns the
        manifest's digest. `made_by`: the sites that trained it, if there are."""
        published = self._published(step)
        if published is not None:
            return published
        prepared = self.encoder.prepared(step, manifests, made_by)
        send(self.encoder.folder(step), prepared, self._bucket, self._account)
        return prepared.manifest.digest

    def _published(self, step: int) -> bytes | None:
        """The manifest of this step on chain, if it is of the very weights that we have: what a delta could lead from
        may be gone since."""
        pool = self._client.pool()
        if pool is None or step >= len(pool.steps):
            return None
        digest = pool.steps[step].manifest
        try:
            stored = self._bucket.get(object_key("manifests", digest), MAX_STORED_BYTES)
        except MissingObjectError:
            return None
        files = unseal(stored, digest, self._scope).files
        return digest if files == weight_files(self.encoder.folder(step)) else None

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
