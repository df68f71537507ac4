"""From an accepted file to training groups: fetched by hash, parsed as hostile, scored again."""

from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

from chain.records import Submission
from environments.pool import PoolEnvironments
from protocol.config import PoolConfig
from protocol.rollouts.file import read
from protocol.rollouts.schema import Limits, MalformedFile, Rollout, RolloutHeader
from storage.keys import object_key
from storage.weights.fetch import OpenObject
from trainer.rollouts import Group, GroupSettings, Source, TrainRollout

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
