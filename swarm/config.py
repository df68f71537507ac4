"""A member's configuration file."""

from pathlib import Path

from pydantic import Field, model_validator

from protocol.api.base import Address
from protocol.config import ModelConfig
from protocol.encoding import Document
from protocol.swarm.plausibility import PlausibilityConfig
from protocol.training import AdamWConfig, DppoConfig, OptimizerConfig, TrainConfig
from runtime.process import DaemonConfig, EngineConfig, KeyConfig
from storage.s3 import S3Settings


class MixConfig(Document):
    """How many groups a round trains on: `own` made by the member, `shared` by others. With `fill` own groups stand in
    for shared ones that are not to be had, so a member who is alone trains as much as one who is not.

    `window`: rounds of its own for which a shared group may be drawn. `per_sharer`: the most groups of one sharer among
    which is drawn. A sharer may go on by `ahead` rounds for each of one's own: who skips rounds picks its problems.
    `fetch` envelopes and `seconds` of inspection a round at most, a quarter of these for one sharer; the others wait.
    An envelope that alone takes longer than that quarter is not taken.

    `plausibility`: what of others' texts the own policy must find possible before it is trained on (null: anything);
    at most `judged` groups a round are looked at so. `certainty`: how sure a sharer is taken to have been of each
    token, whatever it says: what it shares weighs as the own policy's chance of saying it, over that (null: as own
    texts do). `even`: each sharer is drawn as often as every other, however much it shares, and has no more than its
    part of the shared groups of a round.
    """

    own: int = Field(4, ge=1, le=256)
    shared: int = Field(4, ge=0, le=256)
    fill: bool = True
    window: int = Field(4, ge=1, le=64)
    per_sharer: int = Field(8, ge=1, le=4096)
    ahead: int = Field(32, ge=1, le=1 << 20)
    fetch: int = Field(64, ge=1, le=4096)
    seconds: float = Field(20.0, gt=0, le=3600)
    plausibility: PlausibilityConfig | None = PlausibilityConfig()
    judged: int = Field(64, ge=1, le=4096)
    certainty: float | None = Field(1.0, gt=0, le=1)
    even: bool = True

    @property
    def total(self) -> int:
        return self.own + self.shared


class MeasuringConfig(Document):
    """Before its first round, every `every` rounds (0: never) and after its last, a member measures itself on
    `problems` problems that no round has, the same for all members: one sampled try at each."""

    every: int = Field(0, ge=0)
    problems: int = Field(64, ge=1, le=4096)

    def due(self, trained: int, rounds: int) -> bool:
        """Whether weights that `trained` of `rounds` rounds (0: without an end) were trained in are measured."""
        return self.every > 0 and (trained % self.every == 0 or trained == rounds)


class GateAccess(Document):
    """The `url` of a swarm's gate. With `allow_private_sources` the bucket that it leads to may lie in a private
    network."""

    url: str
    allow_private_sources: bool = False


class SwarmMemberConfig(DaemonConfig):
    """`document`: the swarm's. `exchange`: the folder, or `s3` the bucket, where envelopes lie, or `gate` the service
    through which those share who hold no key of that bucket. The envelopes of `members` are read, or with ()
    everybody's. `rounds`: after how many it ends (0: never); `pace`: least seconds from one round's beginning to the
    next one's, for a machine that has other work, too; `checkpoint_every` rounds it writes down how far it is, which is
    what a kill takes it back to."""

    document: Path
    model: ModelConfig
    key: KeyConfig
    exchange: Path | None = None
    s3: S3Settings | None = None
    gate: GateAccess | None = None
    members: tuple[Address, ...] = ()
    mix: MixConfig = MixConfig()
    max_new_tokens: int = Field(64, ge=1, le=131072)
    max_prompt_tokens: int = Field(256, ge=1, le=131072)
    temperature: float = Field(1.0, gt=0, le=10)
    train: TrainConfig = TrainConfig(
        steps=1000, files_per_step=1, optimizer=OptimizerConfig(method=AdamWConfig(learning_rate=1.5e-4))
    )
    engine: EngineConfig = EngineConfig()
    evaluation: MeasuringConfig = MeasuringConfig()
    rounds: int = Field(0, ge=0)
    pace: float = Field(0, ge=0, le=86400)
    checkpoint_every: int = Field(1, ge=1, le=1000)

    @model_validator(mode="after")
    def _one_exchange(self) -> "SwarmMemberConfig":
        if sum(one is not None for one in (self.exchange, self.s3, self.gate)) != 1:
            raise ValueError("name one of `exchange`, a folder, `s3`, a bucket, and `gate`, a service before a bucket")
        return self

    @model_validator(mode="after")
    def _weights_that_are_used(self) -> "SwarmMemberConfig":
        algorithm = self.train.algorithm
        used = algorithm.importance_cap > 0 and not isinstance(algorithm.loss, DppoConfig)
        if self.mix.certainty is not None and not used:
            raise ValueError(
                "`mix.certainty` bounds what others' texts may do by importance weights: name a loss that uses them"
                " (not dppo) and an importance_cap above 0, or set it to null"
            )
        return self
