"""Inner tasks on text and by reinforcement learning.

Each of a worker's ranks has the task, with its own part of the weights. Rank 0 runs the worker and has the data; the
others follow it."""

from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch.distributed.tensor import DTensor, distribute_tensor

from diloco import inner
from diloco.codec import F32, Tensors
from diloco.config import DilocoRun, TextTaskConfig, WorkerConfig
from diloco.messages import MAX_NAMED
from protocol.config import PoolConfig
from protocol.encoding import load_document
from protocol.errors import ConfigError, IntegrityError, MusterError, ScoringUnavailable, UnreachableError
from protocol.models import load_tokenizer
from protocol.rollout_file.rows import MalformedFile
from storage.keys import MissingObjectError
from storage.s3 import Bucket
from trainer.checkpoint import PendingCheckpoint
from trainer.data.batch import Group
from trainer.data.files import Loader
from trainer.distributed import BroadcastCalls, on_all_ranks
from trainer.learner import Learner
from trainer.model.policy import Policy, model_folder
from trainer.model.sharding import Placement, whole
from trainer.reports.step_metrics import StepMetrics
from trainer.sft import Example, SftLearner, SftMetrics

L = TypeVar("L", SftLearner, Learner)


def make_task(config: WorkerConfig, run: DilocoRun, placement: Placement) -> "TextTask | RlTask":
    """Return this rank's task. Raises ConfigError where it does not fit the run; IntegrityError."""
    folder, follows = model_folder(config.model), placement.ranks.rank > 0
    if (rl := config.rl) is not None:
        pool = load_document(rl.pool, PoolConfig)
        check_pool_run(run, pool)
        learner = Learner(folder, pool.train, pool.work.temperature, pool.model.dtype, placement, rl.seed)
        return RlTask(pool, learner, None if follows else Loader(pool, Bucket(config.s3).get, folder))
    assert config.text is not None, "a configuration names one task"
    own_learner = text_learner(config.text, folder, placement)
    if follows:
        return TextTask(run, own_learner)
    corpus = inner.text_corpus(config.text)
    inner.check_data(run, inner.data_digest(corpus, config.text, folder))
    return text_task(config.text, folder, corpus, run, own_learner)


class RankTask(BroadcastCalls, Generic[L]):
    """What every task does with the learners of all ranks. Rank 0 calls the methods."""

    def __init__(self, learner: L) -> None:
        super().__init__(learner.placement.ranks)
        self.learner: L = learner
        self._saving: PendingCheckpoint | None = None

    @on_all_ranks
    def weights(self) -> Tensors:
        """Return a copy of the whole model, float32."""
        return model_tensors(self.learner.policy.model, self.ranks.rank == 0)

    def load(self, weights: Tensors) -> None:
        """Put weights in place of all ranks' parts."""
        self.ranks.command(("_set", (None,)))  # the others receive them one tensor at a time
        self._run_together("_set", (weights,))

    @on_all_ranks
    def _set(self, weights: Tensors | None) -> None:
        set_tensors(self.learner.policy.model, weights)

    @on_all_ranks
    def _save(self, folder: Path, extra: dict[str, Any]) -> None:
        assert self._saving is None, "one at a time"
        self._saving = self.learner.start_checkpoint(folder, extra)

    def saved(self) -> bool:
        return self._saving is None or self._saving.done()

    @on_all_ranks
    def finish_save(self) -> None:
        saving, self._saving = self._saving, None
        if saving is not None:
            saving.wait()

    @on_all_ranks
    def _restore(self, folder: Path) -> dict[str, Any]:
        return self.learner.load_checkpoint(folder)


def model_tensors(model: Any, wanted: bool = True) -> Tensors:
    """Return copies of a model's trained parameters in host memory, float32 and whole even where ranks hold parts; none
    where they are not `wanted`. Every rank must call it."""
    tensors: dict[str, F32] = {}
    for name, parameter in _trained(model):
        value = whole(parameter)
        if wanted:
            tensors[name] = value.to("cpu", torch.float32, copy=True).numpy()
    return tensors


@torch.no_grad()
def set_tensors(model: Any, tensors: Tensors | None) -> None:
    """Put tensors in place of the model's parameters. Every rank must call it; those of rank 0 count."""
    for name, parameter in _trained(model):
        given = None if tensors is None else torch.from_numpy(np.ascontiguousarray(tensors[name]))
        if not isinstance(parameter, DTensor):
            assert given is not None, "a process alone has them"
            parameter.copy_(given)
            continue
        mesh = parameter.device_mesh
        value = torch.empty(parameter.shape) if given is None else given
        spread = distribute_tensor(value.to(mesh.device_type), mesh, parameter.placements)
        parameter.to_local().copy_(spread.to_local())


def _trained(model: Any) -> list[tuple[str, torch.Tensor]]:
    return [(name, parameter.detach()) for name, parameter in model.named_parameters() if parameter.requires_grad]


# Text: the next documents of the stream that the worker owns


def text_learner(config: TextTaskConfig, folder: Path, placement: Placement) -> SftLearner:
    return SftLearner(Policy(folder, config.dtype, placement), config.optimizer, config.updates)


class TextTask(RankTask[SftLearner]):
    """Learns to predict `batch_tokens` tokens of the `stream` per inner step, packed, nothing padded; `heldout`
    examples measure the loss. Rank 0 has these. An InnerTask. The learning rate's schedule goes by the run's inner
    steps, so a worker that joins late has the rate of the others."""

    def __init__(
        self,
        run: DilocoRun,
        learner: SftLearner,
        stream: inner.TextStream | None = None,
        batch_tokens: int = 0,
        heldout: Sequence[Example] = (),
    ) -> None:
        super().__init__(learner)
        self._inner_steps, self._stream = run.settings.inner_steps, stream
        self._batch_tokens, self._heldout = batch_tokens, heldout
        self._made: list[SftMetrics] = []
        self.cursor = inner.Cursor()

    @on_all_ranks
    def update(self, examples: Sequence[Example], number: int) -> SftMetrics:
        """Learn from a batch, as update `number` of the run."""
        self.learner.updates = number
        return self.learner.update(examples)

    @on_all_ranks
    def loss(self, examples: Sequence[Example]) -> float:
        """Return the mean loss (nats) of the learned tokens, without learning."""
        return self.learner.loss(examples)

    def load(self, weights: Tensors) -> None:
        super().load(weights)
        self._made.clear()

    def next_batch(self, cursor: inner.Cursor, share: inner.DataShare) -> tuple[list[Example], inner.Cursor]:
        """Return the worker's next examples from a position of the stream, and where they end; none if an epoch has
        none."""
        assert self._stream is not None, "rank 0 has the data"
        pieces, after = self._stream.take(cursor, self._batch_tokens, share.owns)
        return predicting(pieces), after

    def train(self, share: inner.DataShare, number: int) -> int:
        if not number and share.position > self.cursor.position:
            self.cursor = inner.Cursor(share.position)
        batch, self.cursor = self.next_batch(self.cursor, share)
        if not batch:
            return 0
        self._made.append(self.update(batch, share.step * self._inner_steps + number))
        return self._made[-1].tokens

    def metrics(self) -> dict[str, float]:
        """Return the mean loss, the largest gradient norm, the last learning rate, the position in the stream, and the
        loss of the documents that are kept apart."""
        metrics = {inner.POSITION: float(self.cursor.position)}
        if self._made:
            metrics["loss"] = sum(step.loss for step in self._made) / len(self._made)
            metrics["grad_norm"] = max(step.grad_norm for step in self._made)
            metrics["learning_rate"] = self._made[-1].learning_rate
        if self._heldout:
            metrics["heldout_loss"] = self.loss(self._heldout)
        return metrics

    def save(self, folder: Path) -> None:
        self._save(folder, {"position": self.cursor.position, "offset": self.cursor.offset})

    def restore(self, folder: Path) -> None:
        extra = self._restore(folder)
        self.cursor = inner.Cursor(int(extra["position"]), int(extra["offset"]))
        self._made.clear()


def predicting(pieces: Iterable[tuple[int, ...]]) -> list[Example]:
    """Return examples in which every token but a piece's first is predicted."""
    return [Example(piece, (False, *(True for _ in piece[1:]))) for piece in pieces if len(piece) >= 2]


def text_task(
    config: TextTaskConfig, folder: Path, corpus: inner.Corpus, run: DilocoRun, learner: SftLearner
) -> TextTask:
    """Return rank 0's task of predicting the documents of `corpus`. Raises ConfigError for a tokenizer without an
    EOS."""
    tokenizer: Any = load_tokenizer(folder)
    count = len(corpus) - config.heldout
    if tokenizer.eos_token_id is None:
        raise ConfigError("the model's tokenizer has no EOS token", "choose another model")

    def encode(text: str) -> tuple[int, ...]:
        tokens = tuple(tokenizer.encode(text))
        return tokens if tokens[-1:] == (tokenizer.eos_token_id,) else (*tokens, int(tokenizer.eos_token_id))

    stream = inner.TextStream(corpus.text, count, encode, bytes.fromhex(run.seed), config.sequence_tokens)
    heldout = [encode(corpus.text(number))[: config.sequence_tokens] for number in range(count, len(corpus))]
    return TextTask(run, learner, stream, config.batch_tokens, predicting(heldout))


# Reinforcement learning: a policy step's updates, on the files that are assigned to the worker

RL_METRICS = (
    "loss", "entropy", "grad_norm", "clip_low", "clip_high", "kl", "learning_rate", "mismatch", "tokens",
    "trained_tokens", "flops",
)  # fmt: skip


def check_pool_run(run: DilocoRun, pool: PoolConfig) -> None:
    """Raise ConfigError unless workers can train the policy of `pool` in this run."""
    minibatches = pool.train.minibatches
    if not run.assigned:
        raise ConfigError(f"the workers of {run.name} read data of their own", "set `assigned` to true")
    if run.settings.inner_steps != minibatches:
        what = f"{run.name} has {run.settings.inner_steps} inner steps, its pool {minibatches} updates a policy step"
        raise ConfigError(what, f"set `settings.inner_steps` to {minibatches}, the pool's `train.minibatches`")
    if run.pool_config != pool.digest.hex():
        raise ConfigError(
            f"{run.name} is for a pool whose document has the SHA-256 {run.pool_config}, not {pool.digest.hex()}",
            "give trainer and workers the pool's own document, and name its SHA-256 as `pool_config` of the run",
        )
    if not len(run.workers) <= pool.train.files_per_step <= pool.train.max_files <= inner.MAX_ITEMS:
        raise ConfigError(
            f"{len(run.workers)} workers for {pool.train.files_per_step} to {pool.train.max_files} files a policy step",
            f"name at most one worker per file, at most {inner.MAX_ITEMS} files a step (`train.files_per_step`, "
            "`filter`)",
        )
    if pool.train.lora is not None:
        raise ConfigError("DiLoCo workers train whole weights", "use a pool without `train.lora`")


class RlTask(RankTask[Learner]):
    """The updates that a trainer alone would make of these files, one per inner step; the learning rate's schedule goes
    by the outer step. An InnerTask."""

    def __init__(self, pool: PoolConfig, learner: Learner, loader: Loader | None = None) -> None:
        super().__init__(learner)
        self._minibatches, self._loader = pool.train.minibatches, loader
        self._read: dict[bytes, list[Group]] = {}
        self._updates: Generator[int, None, StepMetrics] | None = None  # that are left of the step
        self._metrics: StepMetrics | None = None  # of the step, once none is left

    @on_all_ranks
    def begin(self, groups: Sequence[Group], step: int) -> None:
        """Prepare the updates of policy step `step` + 1 on these groups."""
        self.learner.step, self.learner.updates = step, step * self._minibatches
        self._updates, self._metrics = self.learner.updates_of(groups), None

    @on_all_ranks
    def update(self) -> int:
        """Take the next update and return its tokens; 0 once there is none left."""
        if self._updates is None:
            return 0
        try:
            return next(self._updates)
        except StopIteration as end:
            self._updates, self._metrics = None, end.value
            return 0

    def train(self, share: inner.DataShare, number: int) -> int:
        """Raise FilesUnusableError for files that cannot be had or scored, or are malformed."""
        if not share.files:
            return 0
        if number:
            return self.update()
        groups = self._groups(share.files)
        self.begin(groups, share.step)
        # Files without any signal count as trained on: they lead to no change.
        return self.update() or sum(len(rollout.output) for group in groups for rollout in group)

    def metrics(self) -> dict[str, float]:
        self.update()  # the step's metrics follow its last update
        metrics = {name: getattr(self._metrics, name, None) for name in RL_METRICS}
        return {name: float(value) for name, value in metrics.items() if value is not None}

    def save(self, folder: Path) -> None:
        self._save(folder, {})

    def restore(self, folder: Path) -> None:
        self._restore(folder)

    def _groups(self, items: Sequence[bytes]) -> list[Group]:
        """Return the groups of all files; what was read is kept while one of them is waited for."""
        self._read = {item: groups for item, groups in self._read.items() if item in items}
        failed: dict[bytes, MusterError] = {}
        assert self._loader is not None, "rank 0 has the data"
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
            raise inner.FilesUnusableError(named, failed[named[0]].what, bool(bad))
        groups, self._read = [group for item in items for group in self._read[item]], {}
        return groups
