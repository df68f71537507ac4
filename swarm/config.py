"""The configuration files of a swarm's member and of its gate."""

from pathlib import Path

from pydantic import Field, model_validator

from protocol.api.base import Address
from protocol.config import AdamWConfig, DppoConfig, ModelConfig, OptimizerConfig, TrainConfig
from protocol.encoding import Document
from runtime.process import DaemonConfig, EngineConfig, KeyConfig
from storage.s3 import S3Settings


class MixConfig(Document):
    """Which groups a round trains on.

    `own` groups are the member's and `shared` groups its peers'. With `fill`, own groups replace shared ones that are
    not available, so that a member that is alone trains on as much as any other.

    - `window`: own rounds during which a received group may be drawn.
    - `per_peer`: how many of a peer's newest groups take part in the draw. `even` draws each peer equally often,
      however much it shares, and limits it to its part of the shared groups of a round.
    - `rounds_ahead`: how many rounds a peer may advance for each own round. A peer that skips rounds picks its
      problems.
    - `inspection_seconds`: most time spent on inspecting envelopes in a round. One peer gets at most a quarter of it;
      the rest waits for the next round.
    - `plausibility`: whether groups that the own policy finds implausible are left out.
    - `assumed_behaviour_prob`: probability with which a peer is assumed to have sampled each token, whatever it claims.
      The importance weight is then the own policy's probability over this (null: no importance weight)."""

    own: int = Field(4, ge=1, le=256)
    shared: int = Field(4, ge=0, le=256)
    fill: bool = True
    window: int = Field(4, ge=1, le=64)
    per_peer: int = Field(8, ge=1, le=4096)
    even: bool = True
    rounds_ahead: int = Field(32, ge=1, le=1 << 20)
    inspection_seconds: float = Field(20.0, gt=0, le=3600)
    plausibility: bool = True
    assumed_behaviour_prob: float | None = Field(1.0, gt=0, le=1)

    @property
    def total(self) -> int:
        return self.own + self.shared


class MeasuringConfig(Document):
    """When a member measures itself on held-out problems: before its first round, every `every` rounds (0: never) and
    after its last. It tries each of `problems` problems once; all members of a swarm try the same ones."""

    every: int = Field(0, ge=0)
    problems: int = Field(64, ge=1, le=4096)

    def due(self, trained: int, rounds: int) -> bool:
        """Return whether to measure after `trained` of `rounds` rounds (0: no last round)."""
        return self.every > 0 and (trained % self.every == 0 or trained == rounds)


class GateAccess(Document):
    """The `url` of a swarm's gate. `allow_private_sources` permits download addresses in private networks."""

    url: str
    allow_private_sources: bool = False


class SwarmMemberConfig(DaemonConfig):
    """Configuration of `muster swarm run`.

    - `document`: file of the swarm's document.
    - `s3` or `gate`: where envelopes are exchanged: a bucket, or a gate for members without a key of the bucket.
    - `members`: addresses whose envelopes are read; empty reads everybody's.
    - `rounds`: after how many rounds the process ends (0: never).
    - `round_seconds`: minimum duration of a round, for a machine that also has other work."""

    document: Path
    model: ModelConfig
    key: KeyConfig
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
    round_seconds: float = Field(0, ge=0, le=86400)

    @model_validator(mode="after")
    def _one_exchange(self) -> "SwarmMemberConfig":
        if (self.s3 is None) == (self.gate is None):
            raise ValueError("name either `s3`, a bucket, or `gate`, a service before a bucket")
        return self

    @model_validator(mode="after")
    def _weights_take_effect(self) -> "SwarmMemberConfig":
        algorithm = self.train.algorithm
        weighted = algorithm.importance_cap > 0 and not isinstance(algorithm.loss, DppoConfig)
        if self.mix.assumed_behaviour_prob is not None and not weighted:
            raise ValueError(
                "`mix.assumed_behaviour_prob` limits peers' texts through importance weights: choose a loss that uses"
                " them (not dppo) and an importance_cap above 0, or set it to null"
            )
        return self


class GateConfig(DaemonConfig):
    """Configuration of `muster swarm run --gate`.

    - `document`: file of the swarm's document.
    - `members`: addresses that may share through the gate.
    - `s3`: the bucket. Members must be able to reach its `public_endpoint`.
    - `public_url`: the URL at which members reach the gate, for which they sign requests.
    - `per_hour`, `bytes_per_hour`: envelopes and bytes that one member may upload in an hour."""

    document: Path
    members: tuple[Address, ...] = Field(min_length=1)
    s3: S3Settings
    host: str = "127.0.0.1"
    port: int = Field(8760, ge=1, le=65535)
    public_url: str = ""
    per_hour: int = Field(240, ge=1, le=100_000)
    bytes_per_hour: int = Field(256 << 20, ge=1024)

    @property
    def url(self) -> str:
        return self.public_url or f"http://{self.host}:{self.port}"
