"""What an attack is: a producer that cheats in one stage and is honest in the others (attacks/registry.py has all)."""

import argparse
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from engines.base import Completion, Engine
from protocol.config import PoolConfig
from protocol.errors import MusterError
from protocol.rollout_file.rows import Inserted, Tokens, interleaved, sampled_positions
from protocol.seeds import Work
from runtime.process import Daemon, DaemonConfig, start
from worker.produce import Planned, Producer


@dataclass(frozen=True)
class Attack:
    """A named way to cheat. `build(config, engine, strength)` makes the producer; `help` says what strength means."""

    name: str
    help: str
    build: Callable[[PoolConfig, Engine, float], Producer]
    default: float = 0.0


REGISTRY: dict[str, Attack] = {}  # every attack of the imported modules by its name


class Cheat(Producer):
    """A producer with a strength; subclasses replace the stage in which they cheat."""

    engine: Engine

    def __init__(self, config: PoolConfig, engine: Engine, strength: float) -> None:
        super().__init__(config, engine)
        self.strength = strength

    def prove(self, texts: Sequence[tuple[Tokens, Tokens, int]], replies: Sequence[Inserted] = ()) -> list[Completion]:
        """Make honest proofs and log-probabilities for text (prompt, output, finish), among the replies to each: the
        true model prefills it."""
        import torch

        from protocol.toploc.proofs import build

        completions, inserted = [], replies or [()] * len(texts)
        filled = [(prompt, interleaved(out, given)) for (prompt, out, _), given in zip(texts, inserted, strict=True)]
        with torch.inference_mode():
            for (_, output, finish), given, prefilled in zip(texts, inserted, self.engine.prefill(filled), strict=True):
                positions = sampled_positions(len(output), given)
                logprobs = (prefilled.logits[positions] / self.config.work.temperature).log_softmax(-1)
                chosen = tuple(float(logprobs[position, token]) for position, token in enumerate(output))
                completions.append(Completion(output, chosen, finish, tuple(build(prefilled.hidden[positions]))))
        return completions

    def proven(self, plan: Sequence[Planned], texts: Sequence[Completion]) -> list[Completion]:
        """Return the completions of a plan with the true model's proofs and log-probabilities."""
        return self.prove([(p.prompt, text.tokens, text.finish) for p, text in zip(plan, texts, strict=True)])

    def another(self, token: int, rng: random.Random) -> int:
        """Draw a token that is not `token` and ends nothing."""
        excluded = (token, *self.environment.eos_ids)
        return rng.choice([other for other in range(self.environment.vocabulary) if other not in excluded])


K = TypeVar("K", bound=type[Cheat])
Change = Callable[..., Any]


def attack(name: str, help: str, default: float = 0.0, registry: dict[str, Attack] = REGISTRY) -> Callable[[K], K]:
    """Put a producer class into a registry."""

    def register(kind: K) -> K:
        registry[name] = Attack(name, help, kind, default)
        return kind

    return register


def alters(
    stage: str, name: str, help: str, default: float = 0.0, registry: dict[str, Attack] = REGISTRY
) -> Callable[[Change], Change]:
    """Register an attack that alters what one stage of an honest producer returns. The function is called with the
    cheat, the honest result and the stage's arguments."""

    def register(change: Change) -> Change:
        def altered(self: Cheat, *arguments: Any) -> Any:
            return change(self, getattr(Producer, stage)(self, *arguments), *arguments)

        attack(name, help, default, registry)(type(change.__name__, (Cheat,), {stage: altered}))
        return change

    return register


def reseeded(plan: Sequence[Planned], luck: random.Random) -> list[Planned]:
    """Return the plan with noise of other seeds."""
    keys = ((luck.getrandbits(64), luck.getrandbits(64), luck.getrandbits(64)) for _ in plan)
    return [replace(planned, noise_key=key) for planned, key in zip(plan, keys, strict=True)]


def other_work(work: Work, **changes: object) -> Work:
    """Return another file's work: `changes` are of its `WorkId`."""
    return replace(work, id=replace(work.id, **changes))  # type: ignore[arg-type]


C = TypeVar("C", bound=DaemonConfig)


def launch(about: str | None, kind: type[C], build: Callable[[str, C], Daemon], **attack: Any) -> NoReturn:
    """Run what `build` makes of the attack and the configuration. `attack`: argparse's settings of `--attack`."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--attack", **attack)
    parser.add_argument("--config", required=True, type=Path)
    options = parser.parse_args()
    try:
        start(options.config, kind, partial(build, options.attack))
    except MusterError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
