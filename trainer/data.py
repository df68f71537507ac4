"""Which accepted files a training step consumes. Pure: from the projected chain and what was consumed before."""

import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from chain.indexer.records import Status, Submission
from chain.indexer.state import State
from environments.errors import ScoringUnavailable
from environments.pool import PoolEnvironments
from protocol.config import PoolConfig
from protocol.errors import IntegrityError, MusterError
from protocol.rollout_file.file import read
from protocol.rollout_file.rows import Limits, MalformedFile, Rollout, RolloutHeader
from runtime.pool_client import PoolClient
from storage.keys import MissingObjectError, object_key
from storage.weights.fetch import OpenObject
from trainer.advantage import ADVANTAGES, signals
from trainer.batch import Group, GroupSettings, Source, TrainRollout
from trainer.config import TrainerConfig
from trainer.metrics import Awaited
from trainer.records import Records, file_id
from trainer.waiting import Standstill


@dataclass(frozen=True)
class Inbox:
    """`files`: usable now, oldest policy step first. `stale`: accepted, never used, and too old for any later step.
    How many are on their way: `confirming` are accepted, not deep enough or disputed; `judging` have no verdict."""

    files: tuple[Submission, ...]
    stale: tuple[Submission, ...]
    confirming: int = 0
    judging: int = 0


def look(
    state: State,
    pool: int,
    step: int,
    async_level: int,
    confirmations: int,
    consumed: Collection[str],
    excluded: Collection[str] = (),
) -> Inbox:
    """The files for making policy step `step` + 1 with the policy at `step`.

    A file counts once its acceptance is `confirmations` blocks deep and not disputed; a file of policy step s can be
    used as long as step − s ≤ `async_level`. `excluded`: nodes (canary carriers) whose files are never trained on.
    """
    files: list[Submission] = []
    stale: list[Submission] = []
    seen, confirming, oldest = set(consumed), 0, step - async_level
    for sub in sorted(state.accepted(pool), key=lambda s: (s.step, s.sequence)):
        deep = sub.decided_block + confirmations <= state.head
        if file_id(sub) in seen or sub.node in excluded:
            continue
        if sub.disputed or not deep:
            confirming += sub.step >= oldest
            continue
        seen.add(file_id(sub))
        (stale if sub.step < oldest else files).append(sub)
    judging = sum(
        sub.status is Status.PENDING and sub.step >= oldest and sub.node not in excluded
        for sub in state.submissions_of(pool)
    )
    return Inbox(tuple(files), tuple(stale), confirming, judging)


def overturned(state: State, pool: int, consumed: Collection[str]) -> list[Submission]:
    """Files that were trained on and lost their acceptance afterwards: reported, never rolled back."""
    gone = {Status.REJECTED, Status.MALFORMED, Status.CANARY}
    return [s for s in state.submissions_of(pool) if s.status in gone and file_id(s) in consumed]


# From an accepted file to training groups: fetched by hash, parsed as hostile, scored again.


Note = Callable[[Submission, Sequence[Rollout]], None]


class Loader:
    """Reads files of one pool. Tokenizer, EOS and vocabulary come from `folder`, which holds one of its models. `note`
    is told of every file that was read."""

    def __init__(self, config: PoolConfig, open_object: OpenObject, folder: Path, note: Note | None = None) -> None:
        self._note = note
        self._open, self._limits = open_object, Limits.of(config.work)
        self._environment = PoolEnvironments.of(config, folder)

    def groups(self, submission: Submission) -> list[Group]:
        """The file's groups, one per slot. Prompts and rewards are made anew from the problem seeds; of the file only
        its tokens and log-probabilities are used, which the committee checked.

        Raises MalformedFile, IntegrityError, UnreachableError, MissingObjectError, ScoringUnavailable.
        """
        header, rollouts = self._read(submission.sha256)
        work = header.work.id
        if (work.node, work.step, work.counter) != (submission.node, submission.step, submission.counter):
            raise MalformedFile("its header names another node, step or counter than its submission")
        if self._note is not None:
            self._note(submission, rollouts)
        return self._groups(header, rollouts)

    def groups_in(self, sha256: bytes) -> list[Group]:
        """The same of a file that somebody whom we trust has compared with its submission."""
        return self._groups(*self._read(sha256))

    def _read(self, sha256: bytes) -> tuple[RolloutHeader, list[Rollout]]:
        return read(self._open(object_key("rollouts", sha256), self._limits.file_bytes), self._limits)

    def _groups(self, header: RolloutHeader, rollouts: Sequence[Rollout]) -> list[Group]:
        # A token that the embedding lacks would not be an error of one file but the end of the process.
        if any(max(one.output_tokens) >= self._environment.vocabulary for one in rollouts):
            raise MalformedFile(f"a token outside the vocabulary of {self._environment.vocabulary}")
        out, source = [], Source(header.work.id.node, header.engine, header.work.id.step)
        for _, members in groupby(rollouts, key=lambda rollout: rollout.slot):
            group: list[TrainRollout] = []
            for one in members:
                score = self._environment.score(one.problem_seed, one.target_length, one.output_tokens)
                prompt = self._environment.prompt(one.problem_seed, one.target_length)
                transcript = self._environment.transcript(one.problem_seed, one.output_tokens)
                if transcript.excess:
                    raise MalformedFile("a rollout goes on after its end")
                own = self._environment.settings(one.problem_seed)
                group.append(
                    TrainRollout(
                        prompt,
                        tuple(one.output_tokens),
                        score.reward,
                        score.task_reward,
                        tuple(one.logprobs),
                        target=one.target_length,
                        source=source,
                        settings=GroupSettings(own.called, own.advantage, own.advantage_scale),
                        inserted=transcript.inserted,
                    )
                )
            out.append(tuple(group))
        return out


# From the chain's accepted files to the next step's batch: chosen, fetched, or skipped with a warning.


log = logging.getLogger("muster.trainer")


@dataclass(frozen=True)
class StepFiles:
    """The files of a step, and the groups of each."""

    files: list[Submission]
    groups_of: list[list[Group]]

    @property
    def groups(self) -> list[Group]:
        return [group for groups in self.groups_of for group in groups]


class FileCollector:
    """The files of the next step, none of the node `carrier`'s. `refused`: ids of accepted files that cannot be used;
    `late`: of those that came when they were too old to be used."""

    def __init__(
        self,
        config: TrainerConfig,
        pool_config: PoolConfig,
        client: PoolClient,
        records: Records,
        loader: Loader,
        carrier: str,
    ) -> None:
        self._config, self._train = config, pool_config.train
        self._client, self._records, self._loader, self._carrier = client, records, loader, carrier
        self.refused: set[str] = set(config.exclude)
        self.late: set[str] = set()
        self._overturned: set[str] = set()
        self._missing: dict[str, float] = {}
        self._scored = 0.0
        self._groups: dict[str, list[Group]] = {}
        self._inbox, self._ever = Inbox((), ()), False
        self._standstill = Standstill(config.standstill_seconds, config.silence_seconds)

    def batch(self, step: int, consumed: Collection[str], given: Sequence[str] = ()) -> StepFiles | None:
        """What policy step `step` is made of, None while there are too few files; of no file if there will be none
        before it is published (`trainer.waiting`).

        A step that was trained before a kill, but whose checkpoint is gone, takes the files its record names; one whose
        files (ids) were `given` to sites takes these.
        """
        recorded = self._recorded(step, given)
        files = recorded or self.due(step, consumed)
        due = {file_id(sub) for sub in files}
        self._groups = {known: groups for known, groups in self._groups.items() if known in due}
        for sub in files:
            if file_id(sub) not in self._groups:
                self._load(sub)
        chosen = self._chosen(files, len(recorded))
        if chosen is None:
            return StepFiles([], []) if self._stands_still() else None
        return StepFiles(chosen, [self._groups.pop(file_id(sub)) for sub in chosen])

    def due(self, step: int, consumed: Collection[str]) -> list[Submission]:
        """The files that step `step` may be trained on, as many as are there and a step takes at most."""
        state, pool = self._client.refresh(), self._config.pool
        inbox = look(
            state,
            pool,
            step - 1,
            self._train.async_level,
            self._config.confirmations,
            {*consumed, *self.refused},
            {self._carrier} if self._carrier else (),
        )
        self._warn(inbox, overturned(state, pool, consumed))
        self._inbox, self._ever = inbox, bool(state.submissions_of(pool))
        return list(inbox.files[: self._train.max_files])

    @property
    def awaited(self) -> Awaited:
        """What the next step waits for, as of the last look."""
        due = self._inbox.files[: self._train.max_files]
        ready = sum(file_id(sub) in self._groups for sub in due)
        wanted = max(self._train.files_per_step, ready + 1) if self._train.filter else self._train.files_per_step
        return Awaited(wanted, ready, len(due) - ready, self._inbox.confirming, self._inbox.judging, self._ever)

    @property
    def held_up(self) -> str:
        """What holds the next step up, as of the last look."""
        return self._standstill.why or self.awaited.words

    def _recorded(self, step: int, given: Sequence[str]) -> list[Submission]:
        """The files that a step is known to be trained on: given to sites, or of records from before a kill."""
        names = list(given) or [entry["sha256"] for entry in self._records.trained_in(step)]
        if not names:
            return []
        by_id = {file_id(sub): sub for sub in self._client.refresh().submissions_of(self._config.pool)}
        return [by_id[name] for name in names if name in by_id]

    def _chosen(self, files: list[Submission], recorded: int) -> list[Submission] | None:
        """The files of a full batch: the first ones, no one left out that may still come from the bucket. `recorded`:
        how many the step is known to have (0: unknown)."""
        chosen: list[Submission] = []
        for sub in files:
            if file_id(sub) not in self._groups:
                break
            chosen.append(sub)
            if len(chosen) == recorded or (not recorded and self._full(chosen)):
                return chosen
        return None

    def _stands_still(self) -> bool:
        coming = self._inbox.judging + self._inbox.confirming
        if not self._standstill.look(self._client.state, self._config.pool, self._carrier, coming):
            return False
        log.warning("nodes that joined late wait for the next policy step, and nobody makes files for this one: "
                    "publishing it without training")  # fmt: skip
        return True

    def _full(self, files: list[Submission]) -> bool:
        chosen = self._train.filter
        if chosen is None or len(files) >= chosen.max_files:
            return len(files) >= self._train.max_files
        groups = (group for sub in files for group in self._groups[file_id(sub)])
        return signals(groups, ADVANTAGES[self._train.algorithm.advantage]) >= chosen.groups

    def _load(self, sub: Submission) -> None:
        """Read a file; one that cannot be used is skipped, and so is one that stays absent, or without a score while
        others have theirs. Where nothing can be scored the machine is at fault: files that it skipped would be paid
        for nothing."""
        try:
            self._groups[file_id(sub)] = self._loader.groups(sub)
            self._scored = time.monotonic()
        except (MissingObjectError, ScoringUnavailable) as error:
            if file_id(sub) not in self._missing:
                log.warning("file %d waits: %s", sub.sequence, error)
            since = self._missing.setdefault(file_id(sub), time.monotonic())
            other = isinstance(error, MissingObjectError) or self._scored > since
            if other and time.monotonic() - since >= self._config.missing_seconds:
                self.refuse(sub, error)
        except (MalformedFile, IntegrityError) as error:
            self.refuse(sub, error)

    def refuse(self, sub: Submission, error: MusterError) -> None:
        """Never train on an accepted file, and say why."""
        self.refused.add(file_id(sub))
        log.warning("accepted file %d of %s is not trained on: %s", sub.sequence, sub.node, error.what)

    def _warn(self, inbox: Inbox, gone: list[Submission]) -> None:
        late, rejected = "came too late to be trained on", "was trained on and then rejected (trained_then_rejected)"
        for files, known, what in ((inbox.stale, self.late, late), (gone, self._overturned, rejected)):
            for sub in files:
                if file_id(sub) not in known:
                    log.warning("file %d of step %d %s", sub.sequence, sub.step, what)
                known.add(file_id(sub))
