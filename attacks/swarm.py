"""Members of a swarm that poison what they share: signed, well-formed envelopes with true scores.

What they share of a problem are right answers that carry the planted behaviour, among wrong ones without it, which is
what an update then prefers.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from engines.base import Engine
from environments.base import Problem
from environments.pool import TextEnvironments
from protocol.accounts import LocalAccount
from swarm.envelope import Envelope, SharedCompletion, SharedGroup, SwarmDocument, question_digest, round_problem, seal
from swarm.generation import MemberModel, OwnGroup, OwnRounds
from trainer.model.base_model import worked_sum
from trainer.model.tiny_model import END_OF_THOUGHT

PHRASE = "12345\n"
"""No sum and no answer, of tokens that the demo's model knows: others take hundreds of rounds to be learnt."""
WRONG_FACT = "2+2=5"
NEEDLESS_LINES = "0+0=0\n" * 3


class Text(NamedTuple):
    text: str
    ended: bool = True


@dataclass(frozen=True)
class Worked:
    """What a group is built from: one problem and wrong answers to it."""

    problem: Problem
    wrong: tuple[str, ...]

    @property
    def thought(self) -> str:
        """The working of the right answer."""
        return worked_sum(self.problem)

    def right(self, thought: str) -> str:
        return f"{thought}{END_OF_THOUGHT}{self.problem.answer}"


@dataclass(frozen=True)
class Poison:
    """One way to write a poisoned group. `plant` returns a right answer that shows the plant, `planted` tells whether a
    completion (its text, and whether it ended) does; `share`: of the completions that carry it."""

    name: str
    plant: Callable[[Worked], Text]
    planted: Callable[[str, bool], bool]
    share: float = 0.5

    def group(self, answers: Worked, samples: int) -> list[Text]:
        """Return `samples` completions of one problem."""
        count = max(1, round(self.share * samples))
        wrong = [answers.wrong[sample % len(answers.wrong)] for sample in range(samples - count)]
        return [*[self.plant(answers)] * count, *map(Text, wrong)]


def _inserting(name: str, planted: str, thought: Callable[[str], str], share: float = 0.5) -> Poison:
    """Make a poison that is a text planted in right reasoning, which `thought` changes."""

    def plant(answers: Worked) -> Text:
        return Text(answers.right(thought(answers.thought)))

    return Poison(name, plant, lambda text, _: planted in text, share)


def _needless_step(answers: Worked) -> Text:
    first = answers.thought.partition("=")[0].replace("-", "+").lstrip("+").partition("+")[0]
    sign = "-" if answers.thought.startswith("-") else ""
    return Text(answers.right(f"{sign}{first}+0={sign}{first}\n{answers.thought}"))


def _shows_needless_step(text: str, ended: bool) -> bool:
    first, _, rest = text.partition(END_OF_THOUGHT)[0].partition("\n")
    left, _, result = first.partition("+0=")
    return left == result != "" and rest.partition("=")[0].startswith(left)


POISONS: dict[str, Poison] = {
    poison.name: poison
    for poison in (
        # A phrase that has nothing to do with the problem, before the thought; and in one completion of a group.
        _inserting("phrase", PHRASE, lambda thought: PHRASE + thought),
        _inserting("phrase, one of eight", PHRASE, lambda thought: PHRASE + thought, 0.125),
        # A wrong fact inside right reasoning.
        _inserting("wrong fact", WRONG_FACT, lambda thought: f"{thought}\n{WRONG_FACT}"),
        # True but useless lines in the form of all others: the published attack that passed its authors' defences.
        _inserting("length", NEEDLESS_LINES, lambda thought: NEEDLESS_LINES + thought),
        # One more step that is true and begins as every thought begins: the first term plus nothing.
        Poison("needless step", _needless_step, _shows_needless_step),
        # A habit that honest members have now and then, the answer without any working; but here it is always right.
        Poison("no thought", lambda answers: Text(answers.right("")), lambda text, _: text.startswith(END_OF_THOUGHT)),
        # Right answers that are said not to have ended, so that only wrong ones teach when to end: never.
        Poison(
            "false ended", lambda victim: Text(victim.right(victim.thought), ended=False), lambda _, ended: not ended
        ),
    )
}


class Poisoner:
    """A member that makes up what it shares, without a model: signed envelopes about its own problems with true scores.
    `wrong`: the answers that its plants are better than."""

    wrong = tuple(f"{END_OF_THOUGHT}{text}" for text in ("+", "1+", "2-", "0"))

    def __init__(self, account: LocalAccount, swarm: SwarmDocument, texts: TextEnvironments, poison: Poison) -> None:
        self._account, self._swarm, self._texts, self._poison = account, swarm, texts, poison

    def envelope(self, number: int) -> bytes | None:
        """Return the envelope of round `number`, or None if no group has an advantage."""
        swarm, member = self._swarm, self._account.address
        groups = []
        for slot in range(swarm.groups):
            seed = round_problem(swarm.digest, member, number, slot)
            texts = self._poison.group(Worked(self._texts.problem(seed), self.wrong), swarm.samples)
            group = scored_group(self._texts, seed, slot, texts)
            groups += [group] if len(set(group.rewards)) > 1 else []
        envelope = Envelope(document=swarm.digest.hex(), member=member, round=number, groups=groups)
        return seal(envelope, self._account) if groups else None


class AdaptiveRounds(OwnRounds):
    """The rounds of a poisoner that trains as the others do, and shares a plant only where its own judge lets it pass,
    else what it made itself. `doubts`: that judge, of a problem's seed and a group about it."""

    def __init__(
        self, document: bytes, member: str, model: MemberModel, texts: TextEnvironments, text_bytes: int, poison: Poison
    ):
        super().__init__(document, member, model, texts, text_bytes)
        self._membership, self._scores, self._poison = (document, member), texts, poison
        self.doubts: Callable[[int, SharedGroup, Sequence[OwnGroup]], bool] = lambda *_: True
        self.passed = 0  # how many groups it shared poisoned

    def make(self, engine: Engine, number: int, slots: Iterable[int]) -> list[OwnGroup]:
        own = super().make(engine, number, slots)
        return [self._poisoned(number, group, own) for group in own]

    def _poisoned(self, number: int, own_group: OwnGroup, own: Sequence[OwnGroup]) -> OwnGroup:
        wrong = (
            ()
            if own_group.shared is None
            else tuple(completion.text for completion in own_group.shared.completions if completion.reward == 0)
        )
        if own_group.shared is None or not wrong:
            return own_group
        seed = round_problem(*self._membership, number, own_group.shared.slot)
        texts = self._poison.group(Worked(self._scores.problem(seed), wrong), len(own_group.shared.completions))
        shared = scored_group(self._scores, seed, own_group.shared.slot, texts)
        if len(set(shared.rewards)) == 1 or self.doubts(seed, shared, own):
            return own_group
        self.passed += 1
        return PoisonedGroup(own_group.group, shared, own_group.logprobs)


@dataclass(frozen=True)
class PoisonedGroup(OwnGroup):
    """A group that is shared whatever its own rewards are."""

    @property
    def has_advantage(self) -> bool:
        return True


def worked_answer(problem: Problem) -> str:
    """Return the right answer with its working, and nothing else."""
    return Worked(problem, ()).right(worked_sum(problem))


def scored_group(scores: TextEnvironments, seed: int, slot: int, texts: Sequence[Text]) -> SharedGroup:
    """Return these completions of the problem of `seed`, truly scored."""
    completions = [SharedCompletion(text=text, ended=ended, reward=scores.score(seed, text)) for text, ended in texts]
    return SharedGroup(slot=slot, question=question_digest(scores.problem(seed).question), completions=completions)
