"""Rollouts of several turns that are not what the environment's replies make them: for pools that have some."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from attacks.base import Attack, Cheat, attack
from attacks.text import fitted
from engines.base import FINISH_EOS, Completion
from environments.pool import PoolEnvironments
from environments.turns import replay
from protocol.models import load_tokenizer
from protocol.rollout_file.rows import Tokens, Transcript
from protocol.seeds import Work
from runtime.turns import RolloutTask, converse
from worker.produce import Planned

Turns = list[Tokens]
TURN_ATTACKS: dict[str, Attack] = {}  # of pools whose environments reply; elsewhere they change nothing


@dataclass(frozen=True)
class _Forged:
    """The replies of an environment as a forger changes them on their way to the model."""

    true: PoolEnvironments
    forge: Callable[[Tokens], Tokens]

    def turns(self, problem_seed: int) -> int:
        return self.true.turns(problem_seed)

    def transcript(self, problem_seed: int, output: Tokens) -> Transcript:
        replies = self.true.replies(problem_seed)

        def reply(turns: Sequence[Tokens]) -> Tokens | None:
            true = replies(turns)
            return None if true is None else self.forge(true)

        return replay(output, self.true.eos_ids, self.turns(problem_seed), reply)


class _InTurns(Cheat):
    """With `strength` ≥ 1 what is handed in is proven again with the true model and the true replies."""

    def transcripts(self, plan: Sequence[Planned], done: Sequence[Completion]) -> list[Transcript]:
        transcript = self.environment.transcript
        return [
            transcript(p.assignment.problem_seed, completion.tokens) for p, completion in zip(plan, done, strict=True)
        ]

    def finished(self, plan: Sequence[Planned], done: Sequence[Completion]) -> list[Completion]:
        if self.strength < 1:
            return [*done]
        texts = [(p.prompt, completion.tokens, completion.finish) for p, completion in zip(plan, done, strict=True)]
        return self.prove(texts, [transcript.inserted for transcript in self.transcripts(plan, done)])


def _forging(name: str, help: str, forge: Callable[[Cheat, Tokens], Tokens]) -> None:
    """Register an attack that samples after replies of its own."""

    @attack(name, f"{help}; strength 1: proves the text again", 0, TURN_ATTACKS)
    class Forging(_InTurns):
        def complete(self, work: Work, plan: Sequence[Planned]) -> list[Completion]:
            tasks = [
                RolloutTask(planned.assignment.problem_seed, planned.prompt, planned.noise_key) for planned in plan
            ]
            replies = _Forged(self.environment, lambda reply: forge(self, reply))
            limit = self.config.work.max_new_tokens
            return self.finished(plan, converse(self.engine, replies, tasks, self.sampling, limit))


def _others(cheat: Cheat, tokens: Sequence[int]) -> Tokens:
    return tuple(cheat.another(token, random.Random(token)) for token in tokens)


_forging("forged-reply", "samples after another answer than the tool's", _others)
_forging("prolonged-reply", "adds to the tool's answers", lambda cheat, reply: reply + _others(cheat, range(8)))
_forging("withheld-reply", "goes on without the tool's answers", lambda cheat, reply: ())


def _rewriting(name: str, help: str, rewrite: Callable[[list[Transcript], int, random.Random], Tokens]) -> None:
    """Register an attack that hands in other turns than it sampled, of rollouts that have several: what `rewrite`
    returns for a row of the file's transcripts."""

    @attack(name, f"{help}; strength 1: proves it again", 0, TURN_ATTACKS)
    class Rewriting(_InTurns):
        def complete(self, work: Work, plan: Sequence[Planned]) -> list[Completion]:
            done, rng = super().complete(work, plan), random.Random(work.seed)
            transcripts, out = self.transcripts(plan, done), []
            for row, completion in enumerate(done):
                tokens = rewrite(transcripts, row, rng) if len(transcripts[row].turns) > 1 else completion.tokens
                tokens = tokens[: self.config.work.max_new_tokens]
                finish = FINISH_EOS if tokens[-1] in self.environment.eos_ids else completion.finish
                out.append(fitted(completion, tokens, finish) if tokens != completion.tokens else completion)
            return self.finished(plan, out)


def _rearranging(name: str, help: str, rearrange: Callable[[Turns, list[Turns], random.Random], Turns]) -> None:
    """Register an attack that hands in the same turns elsewhere, or turns of rollouts that begin otherwise."""

    def rewrite(transcripts: list[Transcript], row: int, rng: random.Random) -> Tokens:
        turns = [list(transcript.turns) for transcript in transcripts]
        others = [other for other in turns if len(other) > 1 and other[0] != turns[row][0]]
        return sum(rearrange(turns[row], others, rng), ())

    _rewriting(name, help, rewrite)


_rearranging("skipped-turn", "leaves out a rollout's first turn", lambda turns, others, rng: turns[1:])
_rearranging(
    "reordered-turns", "swaps a rollout's first two turns", lambda turns, others, rng: [turns[1], turns[0], *turns[2:]]
)
_rearranging(
    "spliced-turns",
    "begins with the first turn of another rollout",
    lambda turns, others, rng: [rng.choice(others)[0], *turns[1:]] if others else turns,
)
_rearranging("early-end", "ends where a reply was due", lambda turns, others, rng: turns[:1])
_rearranging("late-end", "goes on after the last turn, which is paid", lambda turns, others, rng: [*turns, turns[0]])
_rearranging(
    "cut-turn",
    "ends a rollout's first turn after one token",
    lambda turns, others, rng: [(turns[0][0], turns[0][-1]), *turns[1:]],
)
_rearranging(
    "prolonged-turn",
    "says a call again and again, which is paid",
    lambda turns, others, rng: [turns[0][:-1] * 4 + turns[0], *turns[1:]],
)


def _paid_reply(transcripts: list[Transcript], row: int, rng: random.Random) -> Tokens:
    own = transcripts[row]
    return sum((reply + turn for reply, turn in zip(((), *own.replies), own.turns, strict=True)), ())


def _own_reply(transcripts: list[Transcript], row: int, rng: random.Random) -> Tokens:
    own = transcripts[row]
    pairs = zip(own.turns[:-1], own.replies, strict=True)
    return (*sum((turn[:-1] + reply for turn, reply in pairs), ()), *own.turns[-1])


_rewriting("paid-reply", "writes the tool's answers into turns, to be paid for them", _paid_reply)
_rewriting("own-reply", "tells itself what the tool says, and goes on in one turn", _own_reply)


@attack("written-calls", "writes the calls and the answer that the problem wants; strength 1: proves", 0, TURN_ATTACKS)
class WrittenCalls(_InTurns):
    """The built-in tool's problems can be made by everybody: the answer is known before anything is sampled."""

    def load(self, weights: Path) -> None:
        super().load(weights)
        self._tokenizer = load_tokenizer(weights)

    def complete(self, work: Work, plan: Sequence[Planned]) -> list[Completion]:
        done = super().complete(work, plan)
        return self.finished(
            plan, [self._written(planned, completion) for planned, completion in zip(plan, done, strict=True)]
        )

    def _written(self, planned: Planned, completion: Completion) -> Completion:
        problem = self.environment.problem(planned.assignment.problem_seed)
        calls = [f"[{box}]" for box in problem.metadata.get("asked", ())]
        end, encode = self.environment.eos_ids[0], self._tokenizer.encode
        tokens: Tokens = tuple(token for text in (*calls, problem.answer) for token in (*encode(text), end))
        return fitted(completion, tokens, FINISH_EOS) if calls and tokens != completion.tokens else completion
