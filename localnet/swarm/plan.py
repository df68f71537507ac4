"""What the swarm's run consists of: its document, its members' configurations, and who is killed when."""

from dataclasses import dataclass
from enum import StrEnum
from itertools import cycle
from pathlib import Path
from random import Random

from localnet.onboarding import KeyRing
from localnet.plan import DEMO_ENVIRONMENT, RunFolder
from protocol.config import AdamWConfig, EnvironmentConfig, OptimizerConfig, ScheduleConfig, TrainConfig
from protocol.files import write_atomic
from storage.s3 import S3Settings
from swarm.config import MeasuringConfig, MixConfig, SwarmMemberConfig
from swarm.envelope import SwarmDocument
from trainer.model.tiny_model import END_OF_THOUGHT, tiny_model_config

LEARNING_RATE = 1.5e-4
FIRST, LAST = 2, 2  # rounds that everybody makes before the bucket goes, and after it is back


class SwarmPhase(StrEnum):
    """Of the run, as the bucket is there or not."""

    BEFORE = "before the outage"
    DURING = "in the outage"
    AFTER = "after the outage"


@dataclass(frozen=True)
class Kill:
    """A member is killed so many `seconds` after the beginning of a phase, or later: once it has made a round."""

    member: str
    phase: SwarmPhase
    seconds: float


@dataclass(frozen=True)
class SwarmPlan(RunFolder):
    """At least `rounds` of each of `members`, `pace` seconds apart or more, with the bucket gone for `outage` seconds
    and until everybody has made a round without it. Each phase must be over within `limit` seconds."""

    seed: int
    s3_port: int
    members: tuple[str, ...]
    kills: tuple[Kill, ...]
    rounds: int = 10
    pace: float = 12.0
    outage: float = 60.0
    limit: float = 600.0
    problems: int = 128  # on which each member is measured before its first round and after every few

    @property
    def document(self) -> Path:
        return self.root / "swarm.json"

    @property
    def storage(self) -> S3Settings:
        return self.s3_settings(self.s3_port, "swarm")


def one_kill_each(members: tuple[str, ...], seed: int, outage: float, pace: float) -> tuple[Kill, ...]:
    """Every member once, a third of them in each phase, at moments that follow from the seed."""
    random = Random(seed)
    longest = {SwarmPhase.BEFORE: pace, SwarmPhase.DURING: outage / 2, SwarmPhase.AFTER: pace}
    turns = zip(members, cycle(longest), strict=False)
    return tuple(Kill(name, phase, round(random.uniform(0, longest[phase]), 1)) for name, phase in turns)


def swarm_document() -> SwarmDocument:
    """Three kinds of sums: the demo's, on which its model was warmed up, shorter ones, and such of either sign."""
    few = {"min_digits": 1, "max_digits": 1, "score_threshold": 1.0}
    kinds = {
        "two": {"min_terms": 2, "max_terms": 2},
        "signed": {"min_terms": 3, "max_terms": 3, "allow_negation": True},
    }
    others = [
        EnvironmentConfig(name=DEMO_ENVIRONMENT.name, label=label, params=params | few)
        for label, params in kinds.items()
    ]
    return SwarmDocument(
        name="demo swarm",
        environments=(DEMO_ENVIRONMENT, *others),
        answer_after=END_OF_THOUGHT,
        groups=12,
        samples=12,
        text_bytes=512,
    )


def member_config(plan: SwarmPlan, name: str, base: Path, ring: KeyRing) -> SwarmMemberConfig:
    """Who trains the weights in `base`, with everybody of the plan as a member."""
    optimizer = OptimizerConfig(
        method=AdamWConfig(learning_rate=LEARNING_RATE), schedule=ScheduleConfig(warmup_updates=0)
    )
    values = {
        "home": plan.home(name),
        "document": plan.document,
        "model": tiny_model_config().model_copy(update={"source": str(base)}),
        "key": ring[name].reference(),
        "s3": plan.storage,
        "members": [ring[other].address for other in plan.members],
        "mix": MixConfig(own=6, shared=6),
        "max_prompt_tokens": 96,
        "train": TrainConfig(steps=1000, files_per_step=1, minibatches=2, optimizer=optimizer),
        "evaluation": MeasuringConfig(every=max(1, plan.rounds // 2), problems=plan.problems),
        "round_seconds": plan.pace,
    }
    return SwarmMemberConfig.model_validate(values)


def write_plan(plan: SwarmPlan, base: Path, ring: KeyRing) -> None:
    """The document, and every member's configuration in its home."""
    plan.document.write_text(swarm_document().model_dump_json(indent=1))
    for name in plan.members:
        config = member_config(plan, name, base, ring)
        config.home.mkdir(parents=True, exist_ok=True)
        write_atomic(config.home / "member.json", config.model_dump_json(indent=1).encode() + b"\n", 0o600)
