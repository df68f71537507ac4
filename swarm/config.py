"""A member's configuration file."""

from pathlib import Path

from pydantic import Field, model_validator

from protocol.api.base import Address
from protocol.config import ModelConfig
from protocol.documents import Document
from protocol.training import AdamWConfig, OptimizerConfig, TrainConfig
from runtime.process import DaemonConfig, EngineConfig, KeyConfig
from storage.settings import S3Settings


class MixConfig(Document):
    """How many groups a round trains on: `own` made by the member, `shared` by others. With `fill` own groups stand in
    for shared ones that are not to be had, so a member who is alone trains as much as one who is not.

    `window`: rounds of its own for which a shared group may be drawn. `per_sharer`: the most groups of one sharer among
    which is drawn. `fetch` envelopes and `seconds` of inspection a round at most; the others wait. One that alone takes
    longer is not taken.
    """

    own: int = Field(4, ge=1, le=256)
    shared: int = Field(4, ge=0, le=256)
    fill: bool = True
    window: int = Field(4, ge=1, le=64)
    per_sharer: int = Field(8, ge=1, le=4096)
    fetch: int = Field(64, ge=1, le=4096)
    seconds: float = Field(20.0, gt=0, le=3600)

    @property
    def total(self) -> int:
        return self.own + self.shared


class SwarmMemberConfig(DaemonConfig):
    """`document`: the swarm's. `exchange`: the folder, or `s3` the bucket, where envelopes lie. `members`: whose
    envelopes are read; () for everybody's, for swarms among friends. `rounds`: after how many it ends (0: never);
    `checkpoint_every` rounds it writes down how far it is, which is what a kill takes it back to."""

    document: Path
    model: ModelConfig
    key: KeyConfig
    exchange: Path | None = None
    s3: S3Settings | None = None
    members: tuple[Address, ...] = ()
    mix: MixConfig = MixConfig()
    max_new_tokens: int = Field(64, ge=1, le=131072)
    max_prompt_tokens: int = Field(256, ge=1, le=131072)
    temperature: float = Field(1.0, gt=0, le=10)
    train: TrainConfig = TrainConfig(
        steps=1000, files_per_step=1, optimizer=OptimizerConfig(method=AdamWConfig(learning_rate=1.5e-4))
    )
    engine: EngineConfig = EngineConfig()
    rounds: int = Field(0, ge=0)
    checkpoint_every: int = Field(1, ge=1, le=1000)

    @model_validator(mode="after")
    def _one_exchange(self) -> "SwarmMemberConfig":
        if (self.exchange is None) == (self.s3 is None):
            raise ValueError("name either `exchange`, a folder, or `s3`, a bucket")
        return self
