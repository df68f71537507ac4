"""Brings policy steps to the bucket and the chain, again after a crash or a reorganisation where needed."""

import logging
import threading
from pathlib import Path

from protocol.accounts import LocalAccount
from protocol.config import PoolConfig
from protocol.encoding import load_document
from protocol.errors import IntegrityError, MusterError
from protocol.evidence.null_model import StepNullModels
from runtime.pool_client import PoolClient
from storage.keys import MissingObjectError, object_key
from storage.s3 import Bucket
from storage.weights.manifest import MAX_STORED_BYTES, Manifest, ManifestScope, StepWorkers, unseal, weight_files
from storage.weights.publish import EarlierStep, OpenFiles, PreparedStep, make_manifest, prepare, send
from trainer.pool.canaries import CanaryPlan

log = logging.getLogger("muster.trainer")


class StepPublisher:
    """Publishes the policy steps in `policies` of the client's home as the pool's owner, and with each step the root of
    its canaries. `made_by`: the DiLoCo workers that trained a step, if any. `upload` is for one thread at a time."""

    def __init__(
        self, client: PoolClient, bucket: Bucket, account: LocalAccount, pool: PoolConfig, canaries: CanaryPlan
    ) -> None:
        self._client, self._bucket, self._account, self._canaries = client, bucket, account, canaries
        self._scope = ManifestScope(client.pool_id, str(account.address))
        self._dtype, self._weights = pool.model.dtype, pool.weights
        self._files = OpenFiles()
        self._lock = threading.Lock()

    def folder(self, step: int) -> Path:
        return self._client.home / "policies" / f"step-{step:06d}"

    def null_model_file(self, step: int) -> Path:
        """Return where a step's null models lie before it is published."""
        return self._client.home / "evidence" / f"step-{step:06d}.json"

    def needed(self, step: int) -> set[Path]:
        """Return the folders of steps up to `step` from which deltas to later ones lead."""
        return {self.folder(step), self.folder(step - step % self._weights.snapshot_every)}

    def upload(self, step: int, manifests: list[bytes], made_by: StepWorkers | None = None) -> bytes:
        """Bring shards and manifest of a policy step, which follows the `manifests`, to the bucket; return the
        manifest's digest: the one on chain if that is of exactly our weights, for the base of a delta may be gone."""
        pool = self._client.pool()
        if pool and step < len(pool.steps):
            published = self._manifest(digest := pool.steps[step].manifest)
            if published and published.files == weight_files(self.folder(step)):
                return digest
        prepared = self.prepared(step, tuple(manifests[:step]), made_by)
        send(self.folder(step), prepared, self._bucket, self._account)
        return prepared.manifest.digest

    def ensure(self, manifests: list[bytes]) -> None:
        """Make the chain hold exactly these steps; of two threads one at a time. Raises IntegrityError if it holds
        others."""
        with self._lock:
            self._ensure(tuple(manifests))

    def _ensure(self, manifests: tuple[bytes, ...]) -> None:
        state = self._client.refresh()
        pool = self._client.pool()
        known = [step.manifest for step in pool.steps] if pool else []
        for step, (ours, theirs) in enumerate(zip(manifests, known, strict=False)):
            if ours != theirs:
                what = f"policy step {step} on chain is not the one this trainer made"
                raise IntegrityError(what, "restore the trainer's home folder, or close the pool")
        for step in range(len(known), len(manifests)):
            root = self._canaries.next_root(state, step)
            seed_block = self._client.suite.pools.ensure_step(self._canaries.pool, step, manifests[step], root)
            log.info("published policy step %d, its seed is block %d", step, seed_block)

    def prepared(self, step: int, manifests: tuple[bytes, ...], made_by: StepWorkers | None = None) -> PreparedStep:
        """Return the manifest and deltas of a step whose folder is complete, equal for equal folders. `manifests`:
        digests of all steps before it. Raises MusterError, and may be called again."""
        folder, parent = self.folder(step), manifests[-1] if manifests else None
        learned = self.null_model_file(step)
        models = load_document(learned, StepNullModels) if learned.is_file() else None
        manifest = make_manifest(folder, self._scope, step, parent, self._dtype, made_by=made_by, null_models=models)
        since_snapshot, size = step % self._weights.snapshot_every, sum(file.size for file in manifest.files)
        bases = []
        for base in dict.fromkeys((step - 1, step - since_snapshot)) if size >= self._weights.delta_min_bytes else ():
            if 0 <= base < step and self.folder(base).is_dir() and (earlier := self._manifest(manifests[base])):
                bases.append(EarlierStep(earlier, self.folder(base)))
        try:
            prepared = prepare(folder, manifest, bases, not since_snapshot, files=self._files)
        except MusterError:
            raise
        except Exception:  # whatever the codec raises, a step can always be published in full
            log.exception("no delta to policy step %d", step)
            prepared = prepare(folder, manifest, [])
        for delta in prepared.manifest.deltas:
            delta_size = sum(file.size for file in delta.files)
            log.info("policy step %d: %d bytes from step %d, %d in full", step, delta_size, delta.step, size)
        return prepared

    def _manifest(self, digest: bytes) -> Manifest | None:
        try:
            return unseal(self._bucket.get(object_key("manifests", digest), MAX_STORED_BYTES), digest, self._scope)
        except (MissingObjectError, IntegrityError) as error:
            log.warning("no use of manifest %s…: %s", digest.hex()[:16], error)
            return None
