"""Prepares policy steps for publication: which deltas lead to them, made on a thread beside the training."""

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
from storage.weights.manifest import MAX_STORED_BYTES, Manifest, ManifestScope, StepSites, unseal, weight_files
from storage.weights.publish import EarlierStep, PreparedStep, make_manifest, prepare, send
from trainer.canaries import CanaryPlan

log = logging.getLogger("muster.trainer")


class StepEncoder:
    """`read` gets published manifests, `policies` holds the exports of policy steps. For one thread."""

    def __init__(
        self, read: OpenObject, scope: ManifestScope, dtype: str, weights: WeightsConfig, policies: Path
    ) -> None:
        self._read, self._scope, self._dtype, self._weights = read, scope, dtype, weights
        self._policies = policies
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="deltas")
        self._begun: tuple[int, Future[PreparedStep]] | None = None

    def folder(self, step: int) -> Path:
        return self._policies / f"step-{step:06d}"

    def needed(self, step: int) -> set[Path]:
        """Folders of steps up to `step` from which deltas to later ones lead."""
        return {self.folder(step), self.folder(step - step % self._weights.snapshot_every)}

    def begin(self, step: int, manifests: Sequence[bytes], made_by: StepSites | None = None) -> None:
        """Start with a step whose folder is complete; `manifests` are the digests of all steps before it, `made_by`:
        the sites that trained it, if there are."""
        self._begun = (step, self._thread.submit(self._prepare, step, tuple(manifests[:step]), made_by))

    def prepared(self, step: int, manifests: Sequence[bytes], made_by: StepSites | None = None) -> PreparedStep:
        """The step's manifest and deltas, equal for equal folders. Raises MusterError, and may be called again."""
        begun, self._begun = self._begun, None
        if begun is not None and begun[0] == step:
            return begun[1].result()
        return self._prepare(step, tuple(manifests[:step]), made_by)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _prepare(self, step: int, manifests: tuple[bytes, ...], made_by: StepSites | None) -> PreparedStep:
        started, folder = time.monotonic(), self.folder(step)
        parent = manifests[-1] if manifests else None
        manifest = make_manifest(folder, self._scope, step, parent, self._dtype, made_by=made_by)
        snapshot, size = step % self._weights.snapshot_every == 0, sum(file.size for file in manifest.files)
        bases = self._bases(step, manifests) if size >= self._weights.delta_min_bytes else []
        try:
            made = prepare(folder, manifest, bases, snapshot)
        except MusterError:
            raise
        except Exception:  # whatever the codec has to say, a step can always be published in full
            log.exception("no delta to policy step %d", step)
            made = prepare(folder, manifest, [])
        for delta in made.manifest.deltas:
            took = sum(file.size for file in delta.files)
            log.info("policy step %d: %d bytes from step %d, %d in full", step, took, delta.step, size)
        log.debug("policy step %d was prepared in %.1f s", step, time.monotonic() - started)
        return made

    def _bases(self, step: int, manifests: tuple[bytes, ...]) -> list[EarlierStep]:
        """The step before, and the last snapshot before it."""
        last = step - step % self._weights.snapshot_every
        numbers = dict.fromkeys(one for one in (step - 1, last) if 0 <= one < step)
        found = ((number, self._manifest(manifests[number])) for number in numbers if self.folder(number).is_dir())
        return [EarlierStep(manifest, self.folder(number)) for number, manifest in found if manifest is not None]

    def _manifest(self, digest: bytes) -> Manifest | None:
        try:
            return unseal(self._read(object_key("manifests", digest), MAX_STORED_BYTES), digest, self._scope)
        except (MissingObjectError, IntegrityError) as error:
            log.warning("no delta from manifest %s…: %s", digest.hex()[:16], error)
            return None


# Brings policy steps to the bucket and the chain, again after a crash or a reorganisation where needed.


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
