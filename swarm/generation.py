"""A member's model at work: its own groups as tokens and as text, peers' texts as its tokens, and its reward on
held-out problems."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from engines.base import FINISH_EOS, Completion, Engine, Request, Sampling
from environments.pool import PoolEnvironments, TextEnvironments
from environments.prompts import completion_text
from protocol.config import EnvironmentConfig, PoolConfig
from protocol.errors import ConfigError
from protocol.models import Tokenizer, eos_ids, load_tokenizer
from swarm.envelope import (
    SharedCompletion,
    SharedGroup,
    heldout_noise,
    heldout_problem,
    question_digest,
    round_noise,
    round_problem,
)
from swarm.sampling import InspectedGroup
from trainer.data.batch import Group, GroupSettings, TrainRollout


@dataclass(frozen=True)
class OwnGroup:
    """A group that the member made. `shared` is its text, or None if it is too long for an envelope; `logprobs` has
    ln p of each token of each completion, as the engine reports it."""

    group: Group
    shared: SharedGroup | None
    logprobs: tuple[tuple[float, ...], ...] = ()

    @property
    def reward(self) -> float:
        return sum(rollout.reward for rollout in self.group) / len(self.group)

    @property
    def has_advantage(self) -> bool:
        return len({rollout.reward for rollout in self.group}) > 1


class MemberModel:
    """What never changes of a member's model: prompts, tokenizer, end tokens and limits. `folder` holds the model.
    Raises IntegrityError if tokenizer, EOS or vocabulary is missing."""

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
    """Makes a member's groups. The same round with the same weights gives the same groups, up to the engine's
    arithmetic. `document` is the digest of the swarm's document."""

    def __init__(
        self, document: bytes, member: str, model: MemberModel, texts: TextEnvironments, text_bytes: int
    ) -> None:
        self._document, self._member, self._model = document, member, model
        self._texts, self._text_bytes = texts, text_bytes

    def make(self, engine: Engine, number: int, slots: Iterable[int]) -> list[OwnGroup]:
        """Return the groups of these slots of round `number`, without slots whose problem is too long for the model.
        Raise ScoringUnavailable if this machine cannot score."""
        work = self._model.config.work
        samples = work.samples_per_problem
        seeds = {slot: round_problem(self._document, self._member, number, slot) for slot in slots}
        asked = {slot: seed for slot, seed in seeds.items() if self._model.prompts.asks(seed, 0)}
        requests = [
            Request(
                self._model.prompts.prompt(seed, 0),
                round_noise(self._document, self._member, number, slot, sample),
                work.max_new_tokens,
            )
            for slot, seed in asked.items()
            for sample in range(samples)
        ]
        sampling = Sampling(work.temperature, self._model.eos, proven=False)
        completions = engine.generate(requests, sampling) if requests else []
        return [
            self._group(slot, seed, completions[index * samples : (index + 1) * samples])
            for index, (slot, seed) in enumerate(asked.items())
        ]

    def _group(self, slot: int, seed: int, completions: list[Completion]) -> OwnGroup:
        model, prompt, rollouts, shared = self._model, self._model.prompts.prompt(seed, 0), [], []
        for completion in completions:
            text = completion_text(model.tokenizer, completion.tokens, model.eos)
            reward = self._texts.score(seed, text)
            logprobs, settings = tuple(completion.logprobs), model.settings(seed)
            rollouts.append(TrainRollout(prompt, completion.tokens, reward, reward, logprobs, settings=settings))
            logprob = min(0, round(1000 * sum(completion.logprobs)))
            ended = completion.finish == FINISH_EOS
            shared.append(SharedCompletion(text=text, ended=ended, reward=reward, logprob=logprob))
        question = question_digest(self._texts.problem(seed).question)
        fits = all(len(completion.text.encode()) <= self._text_bytes for completion in shared)
        public = SharedGroup(slot=slot, question=question, completions=shared) if fits else None
        return OwnGroup(tuple(rollouts), public, tuple(tuple(completion.logprobs) for completion in completions))


class Retokeniser:
    """Turns peers' texts into rollouts under the member's own tokenizer. Each token counts as sampled with probability
    `assumed_behaviour_prob`, whatever its peer claims; with 1, an update's importance weight is the own policy's
    probability of it, so a policy does not learn what it never says. Only completions above the group's mean count, and
    repeated texts once: among texts to become less likely, a peer could choose what others say best. None: all weigh
    1."""

    def __init__(self, model: MemberModel, assumed_behaviour_prob: float | None) -> None:
        self._model = model
        self._logprob = None if assumed_behaviour_prob is None else math.log(assumed_behaviour_prob)
        special = {token for token, added in model.tokenizer.added_tokens_decoder.items() if added.special}
        self._control = special | set(model.eos)

    def group(self, inspected: InspectedGroup) -> Group | None:
        """Return the group for training, or None if the prompt is too long for this model or a text is no answer that
        it could have given: one with control tokens, one that its tokenizer changes, or one that is too long."""
        model, seed = self._model, inspected.problem_seed
        if not model.prompts.asks(seed, 0):
            return None
        prompt = model.prompts.prompt(seed, 0)
        rollouts: list[TrainRollout] = []
        for completion, reward in zip(inspected.group.completions, inspected.rewards, strict=True):
            output = self._output(completion.text, completion.ended)
            if output is None:
                return None
            logprobs = self._logprobs(inspected, len(rollouts), len(output))
            rollouts.append(TrainRollout(prompt, output, reward, reward, logprobs, settings=model.settings(seed)))
        return tuple(rollouts)

    def _logprobs(self, inspected: InspectedGroup, index: int, tokens: int) -> tuple[float, ...]:
        """The assumed log-probs; infinite where the weight is to be 0."""
        if self._logprob is None:
            return ()
        texts = [(completion.text, completion.ended) for completion in inspected.group.completions[: index + 1]]
        counts = inspected.rewards[index] > inspected.mean and texts[-1] not in texts[:-1]
        return (self._logprob if counts else math.inf,) * tokens

    def _output(self, text: str, ended: bool) -> tuple[int, ...] | None:
        model, longest = self._model, self._model.config.work.max_new_tokens
        tokens = model.tokenizer.encode(text, add_special_tokens=False)
        if ended:
            tokens = [*tokens, model.end]
        if not 1 <= len(tokens) <= longest or max(tokens) >= model.prompts.vocabulary:
            return None
        own = tokens[:-1] if ended else tokens
        if self._control.intersection(own):  # it would be trained as if the policy had chosen to end there
            return None
        again = model.tokenizer.decode(own, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return tuple(tokens) if again == text else None


class HeldOut:
    """A member's measure of itself: `problems` held-out problems, the same ones for all members of the swarm, as the
    model in `folder` is asked; `document` is the swarm document's digest. The rewards of its rounds say less, since
    each round has other problems. Raises ConfigError if an environment draws all its rows for rounds."""

    def __init__(self, document: bytes, model: MemberModel, folder: Path, problems: int) -> None:
        check_held_out(model.config.environments)
        self._environments = PoolEnvironments.of(model.config, folder, held_out=True)
        self._eos = model.eos
        self._tries = [(heldout_problem(document, index), heldout_noise(document, index)) for index in range(problems)]

    def reward(self, engine: Engine) -> float:
        """Return the mean reward of one try each, with the weights that the engine has loaded and noise of its own, so
        it changes nothing that is trained. Raise ScoringUnavailable if this machine cannot score."""
        asking, work = self._environments, self._environments.config.work
        requests = [Request(asking.prompt(seed, 0), noise, work.max_new_tokens) for seed, noise in self._tries]
        completions = engine.generate(requests, Sampling(work.temperature, self._eos, proven=False))
        tries = zip(self._tries, completions, strict=True)
        scores = (asking.score(seed, 0, completion.tokens) for (seed, _), completion in tries)
        return math.fsum(score.task_reward for score in scores) / len(self._tries)


def check_held_out(environments: Sequence[EnvironmentConfig]) -> None:
    """Raise ConfigError if an environment draws all rows of its data file for rounds."""
    for environment in environments:
        if environment.rows and not environment.held_out:
            what = f"environment {environment.called} holds no rows out, so nothing can be measured on it"
            raise ConfigError(what, "set `held_out` in the swarm's document, or evaluation.every to 0")
