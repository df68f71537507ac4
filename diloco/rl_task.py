"""Inner steps of reinforcement learning: a policy step's updates, on the files that are assigned to the worker."""

from collections.abc import Sequence
from pathlib import Path

from diloco.config import DilocoRun, RlTaskConfig
from diloco.messages import MAX_NAMED
from diloco.partition import MAX_ITEMS
from diloco.store import Saving
from diloco.tasks import DataShare, FilesUnusableError, RlLearners
from diloco.tensors import Tensors
from protocol.config import PoolConfig
from protocol.encoding import load_document
from protocol.errors import ConfigError, IntegrityError, MusterError, ScoringUnavailable, UnreachableError
from protocol.rollout_file.rows import MalformedFile
from storage.keys import MissingObjectError
from storage.weights.fetch import OpenObject
from trainer.data.batch import Group
from trainer.data.files import Loader
from trainer.learner import Learner
from trainer.model.sharding import Placement
from trainer.reports.step_metrics import StepMetrics

METRICS = (
    "loss", "entropy", "grad_norm", "clip_low", "clip_high", "kl", "learning_rate", "mismatch", "tokens",
    "trained_tokens", "flops",
)  # fmt: skip


def rl_learners(config: RlTaskConfig, folder: Path, placement: Placement) -> RlLearners:
    """Return the learner of one rank."""
    pool = load_document(config.pool, PoolConfig)
    train, temperature = pool.train, pool.work.temperature
    return RlLearners(Learner(folder, train, temperature, pool.model.dtype, placement, config.seed))


def check_pool_run(run: DilocoRun, pool: PoolConfig) -> None:
    """Raise ConfigError unless workers can train the policy of `pool` in this run."""
    minibatches = pool.train.minibatches
    if not run.assigned:
        raise ConfigError(f"the workers of {run.name} read data of their own", "set `assigned` to true")
    if run.settings.inner_steps != minibatches:
        raise ConfigError(
            f"{run.name} has {run.settings.inner_steps} inner steps, its pool {minibatches} updates a policy step",
            f"set `settings.inner_steps` to {minibatches}, the pool's `train.minibatches`",
        )
    if run.pool_config != pool.digest.hex():
        raise ConfigError(
            f"{run.name} is for a pool whose document has the SHA-256 {run.pool_config}, not {pool.digest.hex()}",
            "give trainer and workers the pool's own document, and name its SHA-256 as `pool_config` of the run",
        )
    if not len(run.workers) <= pool.train.files_per_step <= pool.train.max_files <= MAX_ITEMS:
        raise ConfigError(
            f"{len(run.workers)} workers for {pool.train.files_per_step} to {pool.train.max_files} files a policy step",
            f"name at most one worker per file, at most {MAX_ITEMS} files a step (`train.files_per_step`, `filter`)",
        )
    if pool.train.lora is not None:
        raise ConfigError("DiLoCo workers train whole weights", "use a pool without `train.lora`")


class RlTask:
    """The updates that a trainer alone would make of these files, one per inner step; the learning rate's schedule goes
    by the outer step. An InnerTask."""

    def __init__(self, pool: PoolConfig, folder: Path, open_object: OpenObject, learners: RlLearners) -> None:
        self._minibatches = pool.train.minibatches
        self._loader = Loader(pool, open_object, folder)
        self._learners = learners
        self._read: dict[bytes, list[Group]] = {}
        self._more = False
        self._metrics: StepMetrics | None = None

    def weights(self) -> Tensors:
        return self._learners.weights()

    def load(self, weights: Tensors) -> None:
        self._learners.load(weights)
        self._more, self._metrics = False, None

    def train(self, share: DataShare, number: int) -> int:
        """Raise FilesUnusableError for files that cannot be had or scored, or are malformed."""
        if not share.files:
            return 0
        if number:
            return self._update()
        groups = self._groups(share.files)
        self._learners.begin(groups, share.step, share.step * self._minibatches)
        self._more, self._metrics = True, None
        # Files without any signal count as trained on: they lead to no change.
        return self._update() or sum(len(one.output) for group in groups for one in group)

    def metrics(self) -> dict[str, float]:
        self._update()  # the step's metrics follow its last update
        found = {name: getattr(self._metrics, name) for name in METRICS} if self._metrics else {}
        return {name: float(value) for name, value in found.items() if value is not None}

    def save(self, folder: Path) -> Saving:
        return self._learners.save(folder)

    def restore(self, folder: Path) -> None:
        self._learners.restore(folder)
        self._more, self._metrics = False, None

    def _update(self) -> int:
        """Take the next update; return 0 once there is none left."""
        if not self._more:
            return 0
        tokens, self._metrics = self._learners.update()
        self._more = self._metrics is None
        return tokens

    def _groups(self, items: Sequence[bytes]) -> list[Group]:
        """Return the groups of all files; what was read is kept while one of them is waited for."""
        self._read = {item: groups for item, groups in self._read.items() if item in items}
        failed: dict[bytes, MusterError] = {}
        for item in items:
            try:
                if item not in self._read:
                    self._read[item] = self._loader.groups_in(item)
            except (MissingObjectError, ScoringUnavailable, UnreachableError, MalformedFile, IntegrityError) as error:
                failed[item] = error
                if isinstance(error, UnreachableError) or len(failed) == MAX_NAMED:
                    break  # the next would be asked for in vain, for as long
        if failed:
            bad = [item for item, error in failed.items() if isinstance(error, MalformedFile | IntegrityError)]
            named = bad or list(failed)
            raise FilesUnusableError(named, failed[named[0]].what, bool(bad))
        groups, self._read = [group for item in items for group in self._read[item]], {}
        return groups
