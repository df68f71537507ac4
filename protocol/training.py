"""How the pool's model is trained: algorithm, optimizer, sizes. Part of the pool's document, so it can never change.

Only what changes the resulting weights stands here; where and how fast they are computed is the trainer's own business
(`trainer/config.py`). Names that do not exist and combinations that make no sense are refused when the document is
read, which is before the pool is created. docs/design/training.md has the formulas.
"""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from protocol.encoding import Document


class GrpoConfig(Document):
    """GRPO's clipped ratio per token (2402.03300). `delta` bounds the ratio where the advantage is negative
    (INTELLECT-2's two-sided clipping); null leaves it open, as the paper does."""

    name: Literal["grpo"] = "grpo"
    epsilon_low: float = Field(0.2, gt=0, lt=1)
    epsilon_high: float = Field(0.2, gt=0)
    delta: float | None = Field(4.0, gt=1)

    @model_validator(mode="after")
    def _delta_beyond_the_clip_range(self) -> "GrpoConfig":
        if self.delta is not None and self.delta <= 1 + self.epsilon_high:
            raise ValueError("delta must exceed 1 + epsilon_high, or be null for one-sided clipping")
        return self


class GspoConfig(Document):
    """GSPO (2507.18071): the clipped ratio of a whole sequence, the geometric mean of its tokens' ratios."""

    name: Literal["gspo"] = "gspo"
    epsilon_low: float = Field(3e-4, gt=0, lt=1)
    epsilon_high: float = Field(4e-4, gt=0)


class CispoConfig(Document):
    """CISPO (MiniMax-M1, 2506.13585): REINFORCE with a bounded ratio as a constant weight; every token has a gradient.

    `ratio_max` is the paper's 1 + ε_high; its lower bound is not used there and does not exist here.
    """

    name: Literal["cispo"] = "cispo"
    ratio_max: float = Field(5.0, gt=1)


class DppoConfig(Document):
    """DPPO with a total-variation mask (2602.04879) and Kimi K2.5's squared log-ratio (2602.02276), prime-rl's default.

    A token has no policy gradient where its probability moved by more than `mask_high` (`mask_low`) upwards
    (downwards) since it was sampled and its advantage would push it further.
    """

    name: Literal["dppo"] = "dppo"
    mask_low: float = Field(0.2, gt=0, le=1)
    mask_high: float = Field(0.2, gt=0, le=1)
    squared_log_ratio: float = Field(1e-3, ge=0)


LossConfig = Annotated[GrpoConfig | GspoConfig | CispoConfig | DppoConfig, Field(discriminator="name")]
AdvantageName = Literal["mean", "normalised", "leave_one_out", "maxrl"]


class KlConfig(Document):
    """A penalty on leaving the base model. `unbiased`: k3 weighted by the ratio, whose expected gradient is that of
    KL(policy ‖ base); `k3`: as GRPO's paper has it, whose gradient is that of KL(base ‖ policy)."""

    coefficient: float = Field(0.0, ge=0)
    estimator: Literal["unbiased", "k3"] = "unbiased"


class AlgorithmConfig(Document):
    """What one update minimises.

    `normaliser`: each token's loss divided by the minibatch's tokens (`tokens`), by the number of its sequences times
    the length of its own (`sequences`), or by the number of sequences times `constant_length` (`constant`).
    `importance_cap` bounds π_old / π_sampled, the weight of a rollout that an older policy made; 0 gives every rollout
    the weight 1.
    """

    loss: LossConfig = GrpoConfig()
    advantage: AdvantageName = "mean"
    normaliser: Literal["tokens", "sequences", "constant"] = "tokens"
    constant_length: int | None = Field(None, ge=1)
    importance_cap: float = Field(2.0, ge=0)
    entropy_coefficient: float = Field(0.0, ge=0)
    kl: KlConfig = KlConfig()

    @model_validator(mode="after")
    def _sensible(self) -> "AlgorithmConfig":
        if 0 < self.importance_cap < 1:
            raise ValueError("importance_cap below 1 would shrink fresh rollouts too; use at least 1, or 0 for none")
        if isinstance(self.loss, GspoConfig) and self.normaliser != "sequences":
            raise ValueError('loss gspo has one term per sequence; it needs normaliser "sequences"')
        if isinstance(self.loss, DppoConfig) and not self.importance_cap:
            raise ValueError("loss dppo compares with the sampling policy; it needs an importance_cap of at least 1")
        if (self.normaliser == "constant") != (self.constant_length is not None):
            raise ValueError('normaliser "constant" and constant_length (tokens) go together')
        return self


class ScheduleConfig(Document):
    """The learning rate over the updates of a run: linear warm-up, then constant until the last `decay_share` of the
    run, over which it falls to `final_share` of its peak along a line or half a cosine."""

    warmup_updates: int = Field(3, ge=0)
    decay: Literal["linear", "cosine"] = "linear"
    decay_share: float = Field(0.4, ge=0, le=1)
    final_share: float = Field(0.1, ge=0, le=1)


class AdamWConfig(Document):
    """AdamW; weight decay on matrices only."""

    name: Literal["adamw"] = "adamw"
    learning_rate: float = Field(3e-4, gt=0)
    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.99, ge=0, lt=1)
    epsilon: float = Field(1e-8, gt=0)
    weight_decay: float = Field(0.01, ge=0)


class MuonConfig(Document):
    """Muon on the blocks' matrices, AdamW elsewhere; Muon's updates are scaled to AdamW's root mean square, so that one
    learning rate serves both."""

    name: Literal["muon"] = "muon"
    learning_rate: float = Field(3e-4, gt=0)
    momentum: float = Field(0.95, ge=0, lt=1)
    beta1: float = Field(0.9, ge=0, lt=1)
    beta2: float = Field(0.99, ge=0, lt=1)
    epsilon: float = Field(1e-8, gt=0)
    weight_decay: float = Field(0.01, ge=0)


MethodConfig = Annotated[AdamWConfig | MuonConfig, Field(discriminator="name")]


class OptimizerConfig(Document):
    """How a gradient becomes an update. `grad_clip` bounds its norm.

    `ess_reference`: the learning rate is multiplied by min(1, √(e / ess_reference)), e being the effective sample size
    of the minibatch's importance weights over its number of sequences (VCPO, 2602.17616); null: never.
    """

    method: MethodConfig = AdamWConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    grad_clip: float = Field(0.5, gt=0)
    ess_reference: float | None = Field(None, gt=0, le=1)


class OnlineFilter(Document):
    """A step takes files until they hold `groups` groups with signal (rewards that differ), and never more than
    `max_files`: a task that is solved, or hopeless, cannot hold a run up."""

    groups: int = Field(ge=1)
    max_files: int = Field(ge=1)


class LoraConfig(Document):
    """LoRA (2106.09685): low-rank additions of `rank` to the projections of the blocks, scaled by `alpha` / `rank`, are
    trained, and nothing else. Published weights contain them."""

    rank: int = Field(16, ge=1, le=1024)
    alpha: float = Field(32.0, gt=0)


class TrainConfig(Document):
    """GRPO as in INTELLECT-2 (two-sided clipping, asynchrony), sized by the pool owner.

    A step trains `files_per_step` files, none older than `max_off_policy_steps` steps, in `minibatches` updates. With a
    `filter` it trains as many as hold enough signal, and `files_per_step` is how many that is expected to be."""

    steps: int = Field(30, ge=1)
    files_per_step: int = Field(4, ge=1)
    max_off_policy_steps: int = Field(2, ge=0, le=16)
    minibatches: int = Field(1, ge=1)
    filter: OnlineFilter | None = None
    lora: LoraConfig | None = None
    algorithm: AlgorithmConfig = AlgorithmConfig()
    optimizer: OptimizerConfig = OptimizerConfig()

    @model_validator(mode="after")
    def _filter_has_room(self) -> "TrainConfig":
        if self.filter is not None and self.filter.max_files < self.files_per_step:
            raise ValueError(f"filter.max_files must be at least files_per_step, {self.files_per_step}")
        return self

    @property
    def max_files(self) -> int:
        """The most files of a step."""
        return self.filter.max_files if self.filter is not None else self.files_per_step
