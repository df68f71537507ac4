"""What an attack is: a producer that cheats in one stage and is honest in the others (attacks/registry.py has all)."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from engines.base import Completion, Engine
from protocol.config import PoolConfig
from protocol.seeds import Work
from worker.produce import Planned, Producer

Build = Callable[[PoolConfig, Engine, float], Producer]


@dataclass(frozen=True)
class Attack:
    """A named way to cheat. `build(config, engine, strength)` makes the producer; `default` is the strength if none is
    given, and what it means stands in `help`."""

    name: str
    help: str
    build: Build
    default: float = 0.0


class Cheat(Producer):
    """A producer with a strength; subclasses replace the stage in which they cheat."""

    attack: ClassVar[Attack]

    def __init__(self, config: PoolConfig, engine: Engine, strength: float) -> None:
        super().__init__(config, engine)
        self.strength = strength

    def reproved(self, plan: Sequence[Planned], done: Sequence[Completion]) -> list[Completion]:
        """The same text with honest proofs and log-probabilities, as if it had been chosen so."""
        pairs = [(p.prompt, c.tokens) for p, c in zip(plan, done, strict=True)]
        return reprove(self.engine, pairs, [c.finish for c in done], self.config.work.temperature)

    def with_other_token(self, tokens: tuple[int, ...], place: int, rng: random.Random) -> tuple[int, ...]:
        """The text with another token at `place` that does not end it."""
        banned = (tokens[place], *self.environment.eos_ids)
        others = [token for token in range(self.environment.vocabulary) if token not in banned]
        return (*tokens[:place], rng.choice(others), *tokens[place + 1 :])


def attack(name: str, help: str, default: float = 0.0) -> Callable[[type[Cheat]], type[Cheat]]:
    """Name a producer class, so that the registry has it."""

    def named(kind: type[Cheat]) -> type[Cheat]:
        kind.attack = Attack(name, help, kind, default)
        return kind

    return named


def reprove(
    engine: Engine, pairs: Sequence[tuple[tuple[int, ...], tuple[int, ...]]], finish: Sequence[int], temperature: float
) -> list[Completion]:
    """Honest proofs and log-probabilities for given text: prefill it with the true model (prompt, output)."""
    import torch

    from protocol.proofs.toploc import build

    done = []
    with torch.inference_mode():
        for (_, output), ended, prefilled in zip(pairs, finish, engine.prefill(pairs), strict=True):
            logprobs = (prefilled.logits / temperature).log_softmax(-1)
            chosen = tuple(float(logprobs[place, token]) for place, token in enumerate(output))
            done.append(Completion(output, chosen, ended, tuple(build(prefilled.hidden))))
    return done


def other(work: Work, **changes: object) -> Work:
    """Another file's work: `changes` are of its `WorkId`."""
    return replace(work, id=replace(work.id, **changes))  # type: ignore[arg-type]
