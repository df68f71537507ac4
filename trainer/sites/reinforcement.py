"""A site's inner steps in reinforcement learning: a policy step's updates, on the files that are dealt to it."""

from collections.abc import Sequence
from pathlib import Path

from protocol.config import PoolConfig
from protocol.errors import IntegrityError, MusterError, ScoringUnavailable, UnreachableError
from protocol.rollout_file.rows import MalformedFile
from protocol.sites.layout import Tensors
from protocol.sites.notes import MAX_NAMED
from storage.keys import MissingObjectError
from storage.weights.fetch import OpenObject
from trainer.batch import Group
from trainer.data import Loader
from trainer.learner import Learner
from trainer.model.sharding import Placement
from trainer.sites.inner import ItemsUnusable, Saving, Share
from trainer.sites.learners import ReinforcementLearners
from trainer.step_metrics import StepMetrics

FIGURES = (
    "loss", "entropy", "grad_norm", "clip_low", "clip_high", "kl", "learning_rate", "mismatch", "tokens",
    "trained_tokens", "flops",
)  # fmt: skip


def reinforcement_learners(
    pool: PoolConfig, folder: Path, placement: Placement, seed: int = 0
) -> ReinforcementLearners:
    """Of one rank, as `placement` says."""
    return ReinforcementLearners(Learner(folder, pool.train, pool.work.temperature, pool.model.dtype, placement, seed))


class ReinforcementWork:
    """The updates that a trainer alone would make of these files, one an inner step; `place` in the schedule of the
    learning rate is the outer step's. An InnerWork."""

    def __init__(
        self, pool: PoolConfig, folder: Path, open_object: OpenObject, learners: ReinforcementLearners
    ) -> None:
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

    def train(self, share: Share, number: int) -> int:
        """Raises ItemsUnusable for files that cannot be had or scored, or are malformed."""
        if not share.own_items:
            return 0
        if number:
            return self._update()
        groups = self._groups(share.own_items)
        self._learners.begin(groups, share.step, share.step * self._minibatches)
        self._more, self._metrics = True, None
        # Files without any signal have been used too: what they lead to is no change.
        return self._update() or sum(len(one.output) for group in groups for one in group)

    def figures(self) -> dict[str, float]:
        """Of the step's metrics those that there are."""
        self._update()
        found = {name: getattr(self._metrics, name) for name in FIGURES} if self._metrics else {}
        return {name: float(value) for name, value in found.items() if value is not None}

    def save(self, folder: Path) -> Saving:
        return self._learners.save(folder)

    def restore(self, folder: Path) -> None:
        self._learners.restore(folder)
        self._more, self._metrics = False, None

    def _update(self) -> int:
        """The next update; 0 once there is none left."""
        if not self._more:
            return 0
        tokens, self._metrics = self._learners.update()
        self._more = self._metrics is None
        return tokens

    def _groups(self, items: Sequence[bytes]) -> list[Group]:
        """Of all files; what was read is kept while one of them is waited for."""
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
            raise ItemsUnusable(named, failed[named[0]].what, bool(bad))
        groups, self._read = [group for item in items for group in self._read[item]], {}
        return groups
