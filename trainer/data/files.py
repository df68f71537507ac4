"""From the chain's accepted files to the next step's batch: chosen, fetched by hash, read as hostile, scored again."""

import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, takewhile
from pathlib import Path

from chain.indexer.records import Status, Submission
from chain.indexer.state import State
from environments.pool import PoolEnvironments
from protocol.config import PoolConfig, TrainConfig
from protocol.errors import IntegrityError, MusterError, ScoringUnavailable
from protocol.rollout_file.file import read
from protocol.rollout_file.rows import Limits, MalformedFile, Rollout, RolloutHeader
from runtime.pool_client import PoolClient
from storage.keys import MissingObjectError, object_key
from storage.weights.fetch import OpenObject
from trainer.config import TrainerConfig
from trainer.data.advantage import overlong_penalty, select
from trainer.data.batch import Group, GroupSettings, Source, TrainRollout
from trainer.data.waiting import AwaitedFiles, StallTimeout
from trainer.reports.records import Records, file_id

log = logging.getLogger("muster.trainer")
_LOOK_BACK = 64  # policy steps before the oldest that counts, whose late files are still reported
_REFUSALS = {Status.REJECTED, Status.MALFORMED, Status.CANARY}


@dataclass
class Inbox:
    """Files by how usable they are for the next step: usable now, oldest policy step first; `stale`: accepted, never
    used, and too old; how many are accepted, but not deep enough or disputed; how many have no verdict."""

    files: list[Submission] = field(default_factory=list)
    stale: list[Submission] = field(default_factory=list)
    confirming: int = 0
    judging: int = 0


def select_files(
    state: State,
    pool: int,
    step: int,
    max_off_policy_steps: int,
    confirmations: int,
    consumed: Collection[str],
    excluded_nodes: Collection[str] = (),
) -> Inbox:
    """Return the files for making policy step `step` + 1 with the policy at `step`.

    A file counts once its acceptance is `confirmations` blocks deep and not disputed. A file of policy step s can be
    used as long as step − s ≤ `max_off_policy_steps`. `consumed`: ids of files that must not be used (again)."""
    inbox, seen, oldest = Inbox(), set(consumed), step - max_off_policy_steps
    for sub in sorted(state.files_since(pool, oldest - _LOOK_BACK), key=lambda sub: (sub.step, sub.sequence)):
        if sub.node in excluded_nodes:
            continue
        if sub.status is Status.PENDING:
            inbox.judging += sub.step >= oldest
        elif sub.status is not Status.ACCEPTED or file_id(sub) in seen:
            continue
        elif sub.disputed or sub.decided_block + confirmations > state.head:
            inbox.confirming += sub.step >= oldest
        else:
            seen.add(file_id(sub))
            (inbox.stale if sub.step < oldest else inbox.files).append(sub)
    return inbox


def overturned(state: State, pool: int, consumed: Collection[str]) -> list[Submission]:
    """Return the files that were trained on and lost their acceptance afterwards: reported, never rolled back."""
    unsettled = (sub for sub in state.submissions.values() if sub.pool == pool)
    return [sub for sub in unsettled if sub.status in _REFUSALS and file_id(sub) in consumed]


class Loader:
    """Reads files of one pool. Tokenizer, EOS and vocabulary come from `folder`, which holds one of its models.
    `on_read` is called with every submission that was read."""

    def __init__(
        self,
        config: PoolConfig,
        open_object: OpenObject,
        folder: Path,
        on_read: Callable[[Submission, Sequence[Rollout]], None] = lambda sub, rollouts: None,
    ) -> None:
        self._on_read, self._open, self._limits = on_read, open_object, Limits.of(config.work)
        self._environment = PoolEnvironments.of(config, folder)
        self._penalty = partial(overlong_penalty, longest=config.work.max_new_tokens, config=config.train.overlong)

    def groups(self, submission: Submission) -> list[Group]:
        """Return the file's groups, one per slot. Prompts and rewards are recomputed from the problem seeds; of the
        file only its tokens and log-probabilities are used, which the committee checked.

        Raises MalformedFile, IntegrityError, UnreachableError, MissingObjectError, ScoringUnavailable.
        """
        header, rollouts = self._read(submission.sha256)
        work = header.work.id
        if (work.node, work.step, work.counter) != (submission.node, submission.step, submission.counter):
            raise MalformedFile("its header names another node, step or counter than its submission")
        self._on_read(submission, rollouts)
        return self._groups(header, rollouts)

    def groups_in(self, sha256: bytes) -> list[Group]:
        """Return the groups of a file that somebody whom we trust has compared with its submission."""
        return self._groups(*self._read(sha256))

    def _read(self, sha256: bytes) -> tuple[RolloutHeader, list[Rollout]]:
        return read(self._open(object_key("rollouts", sha256), self._limits.file_bytes), self._limits)

    def _groups(self, header: RolloutHeader, rollouts: Sequence[Rollout]) -> list[Group]:
        # A token that the embedding lacks would not be an error of one file but the end of the process.
        if any(max(rollout.output_tokens) >= self._environment.vocabulary for rollout in rollouts):
            raise MalformedFile(f"a token outside the vocabulary of {self._environment.vocabulary}")
        source = Source(header.work.id.node, header.engine, header.work.id.step)
        slots = groupby(rollouts, key=lambda rollout: rollout.slot)
        return [tuple(self._train_rollout(rollout, source) for rollout in members) for _, members in slots]

    def _train_rollout(self, rollout: Rollout, source: Source) -> TrainRollout:
        environment, seed = self._environment, rollout.problem_seed
        transcript = environment.transcript(seed, rollout.output_tokens)
        if transcript.excess:
            raise MalformedFile("a rollout goes on after its end")
        score = environment.score(seed, rollout.target_length, rollout.output_tokens)
        settings = environment.settings(seed)
        return TrainRollout(
            environment.prompt(seed, rollout.target_length),
            tuple(rollout.output_tokens),
            score.reward - self._penalty(len(rollout.output_tokens)),
            score.task_reward,
            tuple(rollout.logprobs),
            target=rollout.target_length,
            source=source,
            settings=GroupSettings(settings.called, settings.advantage, settings.advantage_scale),
            inserted=transcript.inserted,
        )


@dataclass(frozen=True)
class StepFiles:
    """The files of a step, and the groups of each."""

    files: list[Submission]
    groups_of: list[list[Group]]

    @property
    def groups(self) -> list[Group]:
        return [group for groups in self.groups_of for group in groups]


class FileCollector:
    """Collects the files of the next step, none of the node `decoy`'s. `refused`: ids of accepted files that cannot be
    used; `late`: of those that came when they were too old to be used."""

    def __init__(
        self,
        config: TrainerConfig,
        train: TrainConfig,
        client: PoolClient,
        records: Records,
        loader: Loader,
        decoy: str,
    ) -> None:
        self._config, self._train = config, train
        self._client, self._records, self._loader, self._decoy = client, records, loader, decoy
        self.refused = set(config.exclude) | records.refused()
        self.late: set[str] = set()
        self._overturned: set[str] = set()
        self._missing_since: dict[str, float] = {}
        self._last_scored = 0.0
        self._groups: dict[str, list[Group]] = {}  # of the files that were read for the next step
        self._inbox, self._any_submitted = Inbox(), False
        self._stall = StallTimeout(config.stall_seconds, config.silence_seconds)

    def batch(self, step: int, consumed: Collection[str], bound: Sequence[str] | None = None) -> StepFiles | None:
        """Return what policy step `step` is trained on; None while there are too few files; no file at all if the step
        has to be published without training (`StallTimeout`).

        A step whose files (ids) are `bound` to DiLoCo workers takes these, and one that was trained before a kill those
        that its record names: other files would be trained on twice, in this step and in theirs. A file that cannot be
        read any more has no groups."""
        bound = bound or self._records.trained_in(step)
        files = self.due(step, consumed) if bound is None else self._named(bound)
        names = {file_id(sub) for sub in files}
        self._groups = {name: groups for name, groups in self._groups.items() if name in names}
        for sub in files:
            name = file_id(sub)
            if name not in self._groups and not (bound and name in self.refused):
                self._load(sub)
            if bound and name in self.refused:
                self._groups.setdefault(name, [])
        # The first ones of a full batch, skipping none that may still come from the bucket.
        ready = list(takewhile(lambda sub: file_id(sub) in self._groups, files))
        for count in range(len(ready) + 1):
            if self._full(ready[:count]) if bound is None else count == len(files):
                chosen = ready[:count]
                return StepFiles(chosen, [self._groups.pop(file_id(sub)) for sub in chosen])
        state, pool = self._client.state, self._config.pool
        undecided = self._inbox.judging + self._inbox.confirming
        # While the step before is on its way to the chain, nobody can work for it, and nodes still wait for it.
        decided = bound is not None or state.pools[pool].step < step - 1
        if decided or not self._stall.check(state, pool, self._decoy, undecided):
            return None
        log.warning("nodes that joined late wait for the next policy step, and nobody makes files for this one: "
                    "publishing it without training")  # fmt: skip
        return StepFiles([], [])

    def due(self, step: int, consumed: Collection[str]) -> list[Submission]:
        """Return the files that step `step` may be trained on, at most as many as a step takes."""
        state, pool = self._client.refresh(), self._config.pool
        limit, confirmations = self._train.max_off_policy_steps, self._config.confirmations
        inbox = select_files(state, pool, step - 1, limit, confirmations, {*consumed, *self.refused}, {self._decoy})
        self._warn(inbox.stale, self.late, "came too late to be trained on")
        gone = overturned(state, pool, consumed)
        self._warn(gone, self._overturned, "was trained on and then rejected (trained_then_rejected)")
        self._inbox, self._any_submitted = inbox, pool in state.pools and len(state.pools[pool].sequences) > 0
        return inbox.files[: self._train.max_files]

    @property
    def awaited(self) -> AwaitedFiles:
        """What the next step waits for, as of the last poll."""
        inbox, train, due = self._inbox, self._train, self._inbox.files[: self._train.max_files]
        ready = sum(file_id(sub) in self._groups for sub in due)
        wanted = max(train.files_per_step, ready + 1) if train.filter else train.files_per_step
        return AwaitedFiles(wanted, ready, len(due) - ready, inbox.confirming, inbox.judging, self._any_submitted)

    def blocked_by(self) -> str:
        """Return what holds the next step up, as of the last poll."""
        return self._stall.why or self.awaited.summary

    def refuse(self, sub: Submission, error: MusterError) -> None:
        """Never train on an accepted file, and log why."""
        self.refused.add(file_id(sub))
        log.warning("accepted file %d of %s is not trained on: %s", sub.sequence, sub.node, error.what)

    def _named(self, names: Sequence[str]) -> list[Submission]:
        if not names:
            return []
        by_id = {file_id(sub): sub for sub in self._client.refresh().submissions_of(self._config.pool)}
        return [by_id[name] for name in names if name in by_id]

    def _full(self, files: list[Submission]) -> bool:
        online = self._train.filter
        if online is None or len(files) >= online.max_files:
            return len(files) >= self._train.max_files
        groups = (group for sub in files for group in self._groups[file_id(sub)])
        return select(groups, self._train.algorithm).used >= online.groups

    def _load(self, sub: Submission) -> None:
        """Read a file. Refuse one that cannot be used, stays absent, or stays without a score while others have theirs.
        Where nothing can be scored the machine is at fault: files that it skipped would be paid for nothing."""
        name = file_id(sub)
        try:
            self._groups[name] = self._loader.groups(sub)
            self._last_scored = time.monotonic()
        except (MissingObjectError, ScoringUnavailable) as error:
            if name not in self._missing_since:
                log.warning("file %d waits: %s", sub.sequence, error)
            since = self._missing_since.setdefault(name, time.monotonic())
            files_fault = isinstance(error, MissingObjectError) or self._last_scored > since
            if files_fault and time.monotonic() - since >= self._config.missing_seconds:
                self.refuse(sub, error)
        except (MalformedFile, IntegrityError) as error:
            self.refuse(sub, error)

    def _warn(self, files: Sequence[Submission], known: set[str], what: str) -> None:
        for sub in files:
            if file_id(sub) not in known:
                log.warning("file %d of step %d %s", sub.sequence, sub.step, what)
                known.add(file_id(sub))
