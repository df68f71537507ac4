"""A member's own groups: its problems of a round, completed by its policy, as tokens for itself and text for others."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from engines.base import FINISH_EOS, Completion, Engine, Request, Sampling
from environments.pool import PoolEnvironments, TextEnvironments
from environments.prompts import completion_text
from protocol.config import PoolConfig
from protocol.models import Tokenizer, eos_ids, load_tokenizer
from protocol.swarm.envelope import SharedCompletion, SharedGroup, question_digest
from protocol.swarm.seeds import round_noise, round_problem
from trainer.batch import Group, GroupSettings, TrainRollout


@dataclass(frozen=True)
class OwnGroup:
    """`shared` is what others get of it, None where a text is too long for an envelope. `logprobs`: ln p of each token
    of each completion, as the engine has it."""

    group: Group
    shared: SharedGroup | None
    logprobs: tuple[tuple[float, ...], ...] = ()

    @property
    def reward(self) -> float:
        return sum(one.reward for one in self.group) / len(self.group)

    @property
    def has_advantage(self) -> bool:
        return len({one.reward for one in self.group}) > 1


class MemberModel:
    """What of a member's model never changes: prompts, tokenizer, the tokens that end a completion, and its limits.
    `folder` holds the model. Raises IntegrityError where tokenizer, EOS or vocabulary are missing."""

    def __init__(self, config: PoolConfig, folder: Path) -> None:
        self.config = config
        self.prompts = PoolEnvironments.of(config, folder)
        self.tokenizer: Tokenizer = load_tokenizer(folder)
        self.eos = eos_ids(folder)
        own = getattr(self.tokenizer, "eos_token_id", None)
        self.end = own if own in self.eos else self.eos[0]

    def settings(self, problem_seed: int) -> GroupSettings:
        own = self.prompts.settings(problem_seed)
        return GroupSettings(own.called, own.advantage, own.advantage_scale)


class OwnRounds:
    """Makes a member's groups. The same round of the same weights is the same on every call, up to the engine's
    arithmetic."""

    def __init__(
        self,
        document: bytes,
        member: str,
        model: MemberModel,
        texts: TextEnvironments,
        text_bytes: int,
    ) -> None:
        self._document, self._member, self._model = document, member, model
        self._texts, self._text_bytes = texts, text_bytes

    def make(self, engine: Engine, number: int, slots: Iterable[int]) -> list[OwnGroup]:
        """The groups of these slots of round `number`, without those whose problem is too long for the model. Raises
        ScoringUnavailable where this machine cannot score."""
        work = self._model.config.work
        seeds = {slot: round_problem(self._document, self._member, number, slot) for slot in slots}
        asked = {slot: seed for slot, seed in seeds.items() if self._model.prompts.asks(seed, 0)}
        requests = [
            Request(
                self._model.prompts.prompt(seed, 0),
                round_noise(self._document, self._member, number, slot, sample),
                work.max_new_tokens,
            )
            for slot, seed in asked.items()
            for sample in range(work.samples_per_problem)
        ]
        done = engine.generate(requests, Sampling(work.temperature, self._model.eos, proven=False)) if requests else []
        samples = work.samples_per_problem
        parts = [done[start : start + samples] for start in range(0, len(done), samples)]
        return [self._group(slot, seed, part) for (slot, seed), part in zip(asked.items(), parts, strict=True)]

    def _group(self, slot: int, seed: int, done: list[Completion]) -> OwnGroup:
        model, prompt, rollouts, shared = self._model, self._model.prompts.prompt(seed, 0), [], []
        for one in done:
            text = completion_text(model.tokenizer, one.tokens, model.eos)
            reward = self._texts.score(seed, text)
            settings, said = model.settings(seed), tuple(one.logprobs)
            rollouts.append(TrainRollout(prompt, one.tokens, reward, reward, said, settings=settings))
            logprob = min(0, round(1000 * sum(one.logprobs)))
            ended = one.finish == FINISH_EOS
            shared.append(SharedCompletion(text=text, ended=ended, reward=reward, logprob=logprob))
        question = question_digest(self._texts.problem(seed).question)
        fits = all(len(one.text.encode()) <= self._text_bytes for one in shared)
        public = SharedGroup(slot=slot, question=question, completions=shared) if fits else None
        return OwnGroup(tuple(rollouts), public, tuple(one.logprobs for one in done))
