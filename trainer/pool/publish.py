"""Brings policy steps to the bucket and the chain, again after a crash or a reorganisation where needed.

The deltas that lead to a step are encoded on a thread beside the training.
"""

import logging
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from protocol.accounts import LocalAccount
from protocol.config import WeightsConfig
from protocol.errors import IntegrityError, MusterError
from runtime.pool_client import PoolClient
from storage.keys import MissingObjectError, object_key
from storage.s3 import Bucket
from storage.weights.fetch import OpenObject
from storage.weights.manifest import MAX_STORED_BYTES, Manifest, ManifestScope, StepWorkers, unseal, weight_files
from storage.weights.publish import EarlierStep, PreparedStep, make_manifest, prepare, send
from trainer.pool.canaries import CanaryPlan

log = logging.getLogger("muster.trainer")


class StepEncoder:
    """Prepares policy steps for publication. `read` gets published manifests, `policies` holds the exports of policy
    steps. For one thread."""

    def __init__(
        self, read: OpenObject, scope: ManifestScope, dtype: str, weights: WeightsConfig, policies: Path
    ) -> None:
        self._read, self._scope, self._dtype, self._weights = read, scope, dtype, weights
        self._policies = policies
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="deltas")
        self._started: tuple[int, Future[PreparedStep]] | None = None

    def folder(self, step: int) -> Path:
        return self._policies / f"step-{step:06d}"

    def needed(self, step: int) -> set[Path]:
        """Return the folders of steps up to `step` from which deltas to later ones lead."""
        return {self.folder(step), self.folder(step - step % self._weights.snapshot_every)}

    def start(self, step: int, manifests: Sequence[bytes], made_by: StepWorkers | None = None) -> None:
        """Begin with a step whose folder is complete. `manifests`: digests of all steps before it; `made_by`: the
        DiLoCo workers that trained it, if any."""
        self._started = (step, self._thread.submit(self._prepare, step, tuple(manifests[:step]), made_by))

    def prepared(self, step: int, manifests: Sequence[bytes], made_by: StepWorkers | None = None) -> PreparedStep:
        """Return the step's manifest and deltas, equal for equal folders. Raises MusterError, and may be called
        again."""
        started, self._started = self._started, None
        if started is not None and started[0] == step:
            return started[1].result()
        return self._prepare(step, tuple(manifests[:step]), made_by)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _prepare(self, step: int, manifests: tuple[bytes, ...], made_by: StepWorkers | None) -> PreparedStep:
        started, folder = time.monotonic(), self.folder(step)
        parent = manifests[-1] if manifests else None
        manifest = make_manifest(folder, self._scope, step, parent, self._dtype, made_by=made_by)
        snapshot, size = step % self._weights.snapshot_every == 0, sum(file.size for file in manifest.files)
        bases = self._bases(step, manifests) if size >= self._weights.delta_min_bytes else []
        try:
            prepared = prepare(folder, manifest, bases, snapshot)
        except MusterError:
            raise
        except Exception:  # whatever the codec raises, a step can always be published in full
            log.exception("no delta to policy step %d", step)
            prepared = prepare(folder, manifest, [])
        for delta in prepared.manifest.deltas:
            delta_size = sum(file.size for file in delta.files)
            log.info("policy step %d: %d bytes from step %d, %d in full", step, delta_size, delta.step, size)
        log.debug("policy step %d was prepared in %.1f s", step, time.monotonic() - started)
        return prepared

    def _bases(self, step: int, manifests: tuple[bytes, ...]) -> list[EarlierStep]:
        """The step before, and the last snapshot before it."""
        snapshot = step - step % self._weights.snapshot_every
        bases = []
        for base in dict.fromkeys((step - 1, snapshot)):
            if 0 <= base < step and self.folder(base).is_dir():
                manifest = self._manifest(manifests[base])
                bases += [EarlierStep(manifest, self.folder(base))] if manifest is not None else []
        return bases

    def _manifest(self, digest: bytes) -> Manifest | None:
        try:
            return unseal(self._read(object_key("manifests", digest), MAX_STORED_BYTES), digest, self._scope)
        except (MissingObjectError, IntegrityError) as error:
            log.warning("no delta from manifest %s…: %s", digest.hex()[:16], error)
            return None


class StepPublisher:
    """Publishes as the pool's owner, and with each step the root of its canaries."""

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

    def upload(self, step: int, manifests: list[bytes], made_by: StepWorkers | None = None) -> bytes:
        """Bring shards and manifest of a policy step, which follows the `manifests`, to the bucket; return the
        manifest's digest."""
        published = self._published(step)
        if published is not None:
            return published
        prepared = self.encoder.prepared(step, manifests, made_by)
        send(self.encoder.folder(step), prepared, self._bucket, self._account)
        return prepared.manifest.digest

    def _published(self, step: int) -> bytes | None:
        """The step's manifest on chain, if it is of exactly our weights: the base of a delta may be gone by now, so the
        step could not be encoded the same way again."""
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
