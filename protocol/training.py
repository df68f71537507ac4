"""How the pool's model is trained: algorithm, optimizer, sizes. Part of the pool's document, so it can never change.

Only what changes the resulting weights stands here; where and how fast they are computed is the trainer's own business
(`trainer/config.py`). Names that do not exist and combinations that make no sense are refused when the document is
read, which is before the pool is created. docs/design/training.md has the formulas.
"""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from protocol.encoding import Document


class GrpoConfig(Document):
    """GRPO's clipped ratio per token (2402.03300), with INTELLECT-2's two-sided clipping."""

    name: Literal["grpo"] = Field("grpo", description="Clip the ratio of every token.")
    epsilon_low: float = Field(0.2, gt=0, lt=1, description="Clip a ratio below 1 - this.")
    epsilon_high: float = Field(0.2, gt=0, description="Clip a ratio above 1 + this.")
    delta: float | None = Field(
        4.0, gt=1, description="Bound on the ratio where the advantage is negative; null (JSON only): none."
    )

    @model_validator(mode="after")
    def _delta_beyond_the_clip_range(self) -> "GrpoConfig":
        if self.delta is not None and self.delta <= 1 + self.epsilon_high:
            raise ValueError("delta must exceed 1 + epsilon_high, or be null for one-sided clipping")
        return self


class GspoConfig(Document):
    """GSPO (2507.18071): the clipped ratio of a whole sequence, the geometric mean of its tokens' ratios."""

    name: Literal["gspo"] = Field(
        "gspo", description="Clip the ratio of a whole sequence; needs `normaliser` sequences."
    )
    epsilon_low: float = Field(3e-4, gt=0, lt=1, description="Clip a ratio below 1 - this.")
    epsilon_high: float = Field(4e-4, gt=0, description="Clip a ratio above 1 + this.")


class CispoConfig(Document):
    """CISPO (MiniMax-M1, 2506.13585): every token has a gradient. `ratio_max` is the paper's 1 + ε_high."""

    name: Literal["cispo"] = Field("cispo", description="REINFORCE with a bounded ratio as a constant weight.")
    ratio_max: float = Field(5.0, gt=1, description="Bound on the ratio.")


class DppoConfig(Document):
    """DPPO with a total-variation mask (2602.04879) and Kimi K2.5's squared log-ratio (2602.02276), prime-rl's default.

    A token has no policy gradient where its probability moved by more than `mask_high` (`mask_low`) upwards
    (downwards) since it was sampled and its advantage would push it further.
    """

    name: Literal["dppo"] = Field("dppo", description="Drop the gradient of tokens whose probability moved too far.")
    mask_low: float = Field(0.2, gt=0, le=1, description="Largest move downwards.")
    mask_high: float = Field(0.2, gt=0, le=1, description="Largest move upwards.")
    squared_log_ratio: float = Field(1e-3, ge=0, description="Weight of the squared log-ratio.")


LossConfig = Annotated[GrpoConfig | GspoConfig | CispoConfig | DppoConfig, Field(discriminator="name")]
AdvantageName = Literal["mean", "normalised", "leave_one_out", "maxrl"]


class KlConfig(Document):
    """A penalty on leaving the base model. `unbiased`: k3 weighted by the ratio, whose expected gradient is that of
    KL(policy ‖ base); `k3`: as GRPO's paper has it, whose gradient is that of KL(base ‖ policy)."""

    coefficient: float = Field(0.0, ge=0, description="Weight of the penalty.")
    estimator: Literal["unbiased", "k3"] = Field("unbiased", description="How the divergence is estimated.")


class AlgorithmConfig(Document):
    """What one update minimises.

    `normaliser`: each token's loss divided by the minibatch's tokens (`tokens`), by the number of its sequences times
    the length of its own (`sequences`), or by the number of sequences times `constant_length` (`constant`).
    `importance_cap` bounds π_old / π_sampled.
    """

    loss: LossConfig = Field(GrpoConfig(), description="Policy loss: grpo, gspo, cispo or dppo.")
    advantage: AdvantageName = Field("mean", description="How the rewards of one problem's answers become advantages.")
    normaliser: Literal["tokens", "sequences", "constant"] = Field(
        "tokens",
        description="What divides a token's loss: the minibatch's tokens, its sequences and lengths, or a constant.",
    )
    constant_length: int | None = Field(None, ge=1, description="Tokens of the constant, with `normaliser` constant.")
    importance_cap: float = Field(
        2.0, ge=0, description="Bound on the weight of a file from an older policy; 0: all weigh 1."
    )
    entropy_coefficient: float = Field(0.0, ge=0, description="Weight of the entropy bonus.")
    kl: KlConfig = Field(KlConfig(), description="Penalty on leaving the base model.")

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

    warmup_updates: int = Field(3, ge=0, description="Updates over which the rate rises from 0.")
    decay: Literal["linear", "cosine"] = Field("linear", description="How it falls at the end.")
    decay_share: float = Field(0.4, ge=0, le=1, description="Last share of the run over which it falls.")
    final_share: float = Field(0.1, ge=0, le=1, description="Share of its peak at the end.")


class AdamWConfig(Document):
    """AdamW; weight decay on matrices only."""

    name: Literal["adamw"] = Field("adamw", description="AdamW.")
    learning_rate: float = Field(3e-4, gt=0, description="Peak learning rate.")
    beta1: float = Field(0.9, ge=0, lt=1, description="Decay of the running mean of gradients.")
    beta2: float = Field(0.99, ge=0, lt=1, description="Decay of the running mean of squared gradients.")
    epsilon: float = Field(1e-8, gt=0, description="Added to the denominator.")
    weight_decay: float = Field(0.01, ge=0, description="Weight decay of matrices; other weights do not decay.")


class MuonConfig(Document):
    """Muon on the blocks' matrices, AdamW elsewhere; Muon's updates are scaled to AdamW's root mean square, so that one
    learning rate serves both."""

    name: Literal["muon"] = Field("muon", description="Muon on the blocks' matrices, AdamW elsewhere.")
    learning_rate: float = Field(3e-4, gt=0, description="Peak learning rate.")
    momentum: float = Field(0.95, ge=0, lt=1, description="Momentum of Muon.")
    beta1: float = Field(0.9, ge=0, lt=1, description="Decay of the running mean of gradients, for AdamW.")
    beta2: float = Field(0.99, ge=0, lt=1, description="Decay of the running mean of squared gradients, for AdamW.")
    epsilon: float = Field(1e-8, gt=0, description="Added to the denominator, for AdamW.")
    weight_decay: float = Field(0.01, ge=0, description="Weight decay of matrices; other weights do not decay.")


MethodConfig = Annotated[AdamWConfig | MuonConfig, Field(discriminator="name")]


class OptimizerConfig(Document):
    """How a gradient becomes an update.

    `ess_reference`: the learning rate is multiplied by min(1, √(e / ess_reference)), e being the effective sample size
    of the minibatch's importance weights over its number of sequences (VCPO, 2602.17616).
    """

    method: MethodConfig = Field(AdamWConfig(), description="Optimizer: adamw or muon.")
    schedule: ScheduleConfig = Field(ScheduleConfig(), description="Learning rate over the updates of a run.")
    grad_clip: float = Field(0.5, gt=0, description="Largest norm of a gradient.")
    ess_reference: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Lower the learning rate where the effective sample size falls below this share; not set: never.",
    )


class OnlineFilter(Document):
    """When a step has enough files; `max_files` keeps a solved or hopeless task from holding a run up."""

    groups: int = Field(ge=1, description="Problems with signal that a step collects.")
    max_files: int = Field(ge=1, description="Most files of a step.")


class LoraConfig(Document):
    """LoRA (2106.09685) on the projections of the blocks. Published weights contain the additions."""

    rank: int = Field(16, ge=1, le=1024, description="Rank of the additions.")
    alpha: float = Field(32.0, gt=0, description="The additions are scaled by alpha / rank.")


class TrainConfig(Document):
    """GRPO as in INTELLECT-2 (two-sided clipping, asynchrony), sized by the pool owner."""

    steps: int = Field(30, ge=1, description="Policy steps of the whole run.")
    files_per_step: int = Field(4, ge=1, description="Files that a step trains; with a `filter`, about how many.")
    max_off_policy_steps: int = Field(
        2, ge=0, le=16, description="Steps that a file may be old; the terms' `max_lag` must be at least as much."
    )
    minibatches: int = Field(1, ge=1, description="Weight updates in each step.")
    filter: OnlineFilter | None = Field(
        None, description="Wait for files with signal: problems whose answers have different rewards."
    )
    lora: LoraConfig | None = Field(
        None, description="Train low-rank additions to the projections instead of all weights."
    )
    algorithm: AlgorithmConfig = Field(AlgorithmConfig(), description="What an update minimises.")
    optimizer: OptimizerConfig = Field(OptimizerConfig(), description="How a gradient becomes an update.")

    @model_validator(mode="after")
    def _filter_has_room(self) -> "TrainConfig":
        if self.filter is not None and self.filter.max_files < self.files_per_step:
            raise ValueError(f"filter.max_files must be at least files_per_step, {self.files_per_step}")
        return self

    @property
    def max_files(self) -> int:
        """The most files of a step."""
        return self.filter.max_files if self.filter is not None else self.files_per_step
