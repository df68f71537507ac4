"""What an attack is: a producer that cheats in one stage and is honest in the others (attacks/registry.py has all)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from engines.base import Completion, Engine
from protocol.config import PoolConfig
from protocol.seeds import Work
from worker.produce import Producer

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

    def prove(self, texts: Sequence[tuple[tuple[int, ...], tuple[int, ...], int]]) -> list[Completion]:
        """Honest proofs and log-probabilities for given text (prompt, output, finish): the true model prefills it."""
        import torch

        from protocol.proofs.toploc import build

        done = []
        with torch.inference_mode():
            prefills = self.engine.prefill([(prompt, output) for prompt, output, _ in texts])
            for (_, output, finish), prefilled in zip(texts, prefills, strict=True):
                logprobs = (prefilled.logits / self.config.work.temperature).log_softmax(-1)
                chosen = tuple(float(logprobs[place, token]) for place, token in enumerate(output))
                done.append(Completion(output, chosen, finish, tuple(build(prefilled.hidden))))
        return done


def attack(name: str, help: str, default: float = 0.0) -> Callable[[type[Cheat]], type[Cheat]]:
    """Name a producer class, so that the registry has it."""

    def named(kind: type[Cheat]) -> type[Cheat]:
        kind.attack = Attack(name, help, kind, default)
        return kind

    return named


def changed(completion: Completion, **changes: object) -> Completion:
    return replace(completion, **changes)  # type: ignore[arg-type]


def other(work: Work, **changes: object) -> Work:
    """Another file's work: `changes` are of its `WorkId`."""
    return replace(work, id=replace(work.id, **changes))  # type: ignore[arg-type]
