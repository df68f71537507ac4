"""One training step, blind to algorithm, model and number of ranks: from groups of rollouts to the next policy step."""

import gc
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from protocol.config import PoolConfig, TrainConfig
from protocol.errors import ConfigError
from protocol.models import load_tokenizer
from trainer.checkpoint import LearnerState, PendingCheckpoint, read_checkpoint
from trainer.config import TrainerConfig
from trainer.data.advantage import select
from trainer.data.batch import Group, MicroBatch, micro_batch
from trainer.distributed import BroadcastCalls, Ranks, on_all_ranks
from trainer.loss import TokenBatch, make_loss, token_weights
from trainer.model.policy import Policy, model_folder
from trainer.model.sharding import Placement
from trainer.optim import apply_update, build_optimizers
from trainer.reports.step_metrics import StepMetrics, StepTotals


class Learner:
    """Holds a policy and its optimizer. `step` is the number of training steps taken: the policy step it is at.

    Every rank has one and is given the same groups."""

    def __init__(
        self,
        folder: Path,
        config: TrainConfig,
        temperature: float,
        dtype: str = "float32",
        placement: Placement | None = None,
        seed: int = 0,
    ) -> None:
        self.config = config
        self.temperature = temperature
        self.placement = placement or Placement()
        self.policy = Policy(folder, dtype, self.placement, lora=config.lora)
        self.optimizers = build_optimizers(self.policy.model, config, self.placement.memory.offload_optimizer)
        self.reference = self._reference(folder, dtype) if config.algorithm.kl.coefficient else None
        self.generator = torch.Generator().manual_seed(seed)
        self.loss = make_loss(config.algorithm)
        self.step = 0
        self.updates = 0

    def _reference(self, folder: Path, dtype: str) -> Policy:
        """What the policy is held to: the teacher, else where it began. Raises ConfigError for another tokenizer."""
        teacher = self.config.algorithm.kl.teacher
        if not teacher:
            return Policy(folder, dtype, self.placement, frozen=True)
        own, other = (cast(Any, load_tokenizer(source)).get_vocab() for source in (folder, model_folder(teacher)))
        if own != other:
            raise ConfigError(
                f"the teacher {teacher} has another tokenizer than the policy", "choose one of its family"
            )
        return Policy(model_folder(teacher), dtype, self.placement, frozen=True)

    def train_step(self, groups: Sequence[Group]) -> StepMetrics:
        """Take one step on the rollouts of `groups`, which may come from several policy steps. Without any group that
        has signal the weights stay as they are, and the step still counts."""
        updates = self.updates_of(groups)
        while True:
            try:
                next(updates)
            except StopIteration as end:
                return cast(StepMetrics, end.value)

    def updates_of(self, groups: Sequence[Group]) -> Generator[int, None, StepMetrics]:
        """Take the same step one update at a time: yield the tokens of each, return the step's metrics."""
        start = time.monotonic()
        selection = select(groups, self.config.algorithm)
        samples, ranks = selection.samples, self.placement.ranks
        order = torch.randperm(len(samples), generator=self.generator).tolist() if samples else []
        size = max(1, -(-len(samples) // self.config.minibatches))
        parts = [order[first : first + size] for first in range(0, len(samples), size)]
        minibatches = []
        for part in parts:
            plan = self.policy.plan([samples[index].length for index in part])[self.placement.row]
            minibatches.append([micro_batch(samples, [part[at] for at in row], self.policy.device) for row in plan])
        share = 1 / max(1, len(minibatches))
        lengths = [len(rollout.output) for group in groups for rollout in group]
        totals = StepTotals(len(samples), self.policy.device)
        # The first update still sees the old policy: only later ones need a pass of their own for ln p_old.
        old: list[list[Tensor | None]] = [[None] * len(rows) for rows in minibatches[:1]]
        with torch.no_grad():
            old += [[self.policy.logprobs(row, self.temperature)[0] for row in rows] for rows in minibatches[1:]]
        for part, rows, logps in zip(parts, minibatches, old, strict=True):
            for left, (row, logp_old) in zip(reversed(range(len(rows))), zip(rows, logps, strict=True), strict=True):
                batch = self._token_batch(row, logp_old)
                token_loss = self.loss(batch)
                weights = token_weights(
                    self.config.algorithm, batch.sequence, sum(lengths) * share, len(lengths) * share
                )
                loss = (weights * token_loss.loss).sum()
                self.policy.backward(loss, last=not left)
                if self.placement.reports:
                    totals.add(row.samples, batch, token_loss, loss)
            totals.updated(*apply_update(self.policy.model, self.optimizers, self.config, self.updates))
            self.updates += 1
            yield sum(samples[index].length for index in part)
        self.step += 1
        flops = self.policy.work.training(sample.length for sample in samples)
        return totals.metrics(self.step, groups, selection, ranks, flops, time.monotonic() - start)

    def _token_batch(self, row: MicroBatch, old: Tensor | None) -> TokenBatch:
        bonus = self.config.algorithm.entropy_coefficient > 0
        logp, entropy = self.policy.logprobs(row, self.temperature, bonus)
        reference = None
        if self.reference is not None:
            with torch.no_grad():
                reference, _ = self.reference.logprobs(row, self.temperature)
        known = logp.detach() if old is None else old
        return TokenBatch(logp, known, row.sampled, row.advantages, entropy, reference, row.sequence)

    def start_checkpoint(self, folder: Path, extra: dict[str, Any] | None = None) -> PendingCheckpoint:
        """Begin to write everything that a bit-exact resume needs, plus `extra` (JSON), to appear at `folder`."""
        state = LearnerState(self.step, self.updates, bytes(self.generator.get_state().tolist()).hex(), extra or {})
        return PendingCheckpoint(folder, self.policy.model, self.optimizers, state, self.placement.ranks)

    def load_checkpoint(self, folder: Path) -> dict[str, Any]:
        """Restore what `start_checkpoint` wrote; return its `extra`. Raises IntegrityError on a damaged checkpoint."""
        state = read_checkpoint(folder, self.policy.model, self.optimizers, self.placement.ranks)
        self.step, self.updates = state.step, state.updates
        self.generator.set_state(torch.tensor(list(bytes.fromhex(state.generator)), dtype=torch.uint8))
        return state.extra


class LearnerGroup(BroadcastCalls):
    """The learners of all ranks, driven by rank 0: what `Learner` and its policy do, on every rank."""

    def __init__(self, ranks: Ranks, make: Callable[[], Learner]) -> None:
        super().__init__(ranks)
        self._make, self.learner = make, make()
        self._pending: PendingCheckpoint | None = None

    @on_all_ranks
    def train_step(self, groups: Sequence[Group]) -> StepMetrics:
        return self.learner.train_step(groups)

    @on_all_ranks
    def start_checkpoint(self, folder: Path, extra: dict[str, Any]) -> None:
        self._pending = self.learner.start_checkpoint(folder, extra)

    @on_all_ranks
    def finish_checkpoint(self) -> None:
        """Wait until the checkpoint begun last is complete. Raises MusterError if it cannot be written."""
        assert self._pending is not None, "no checkpoint was begun"
        self._pending.wait()

    @on_all_ranks
    def load_checkpoint(self, folder: Path) -> dict[str, Any]:
        return self.learner.load_checkpoint(folder)

    @on_all_ranks
    def gather(self) -> Callable[[Path], object]:
        return self.learner.policy.gather()

    @on_all_ranks
    def renew(self) -> None:
        """Start with fresh learners at policy step 0."""
        del self.learner  # two at a time would take twice the memory
        self._pending = None
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        self.learner = self._make()


def start_learners(
    config: TrainerConfig, placement: Placement, pool_and_base: tuple[PoolConfig, Path] | None = None
) -> LearnerGroup:
    """Start this rank's learner. Rank 0 tells the others what is trained, and from which folder of weights, which all
    of them must see."""
    pool, base = placement.ranks.command(pool_and_base)
    temperature, dtype = pool.work.temperature, pool.model.dtype
    return LearnerGroup(placement.ranks, lambda: Learner(base, pool.train, temperature, dtype, placement, config.seed))
