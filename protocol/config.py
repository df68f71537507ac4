"""The pool's configuration document: what is trained, in which environments, and how it is checked.

Its canonical JSON's SHA-256 is the pool's immutable `configHash` on chain. Money and windows live on chain.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt, model_validator

from protocol.encoding import Document, canonical_json, load_document, parse_document, tagged_hash, words
from protocol.errors import ConfigError
from protocol.evidence.null_model import EvidenceConfig

MAX_CANDIDATES = 1 << 22
MAX_ROWS = 1 << 22
MAX_ENVIRONMENTS = 64
MAX_FILE_BYTES = 1 << 28
MAX_ROW_BYTES = 4 << 20
SLOW_NODE = 200
"""Output tokens a second of the slowest node that a lease is made for."""
LEAST_SHARE = 64
"""Of an environment with a curriculum: drawing another problem of it takes so many looks at most, on average."""
TargetLengths = Annotated[tuple[PositiveInt, ...], Field(min_length=1, max_length=64)]
EnvironmentName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9._/-]{0,199}$")]
Label = Annotated[str, Field(pattern=r"^([a-zA-Z0-9][a-zA-Z0-9._/-]{0,63}|)$")]
HexOrEmpty = Annotated[str, Field(pattern=r"^([0-9a-f]{64}|)$")]
ScoringName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
ScoringVersion = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+!-]{0,63}$")]

# Training: what changes the resulting weights; docs/design/training.md has the formulas


class GrpoConfig(Document):
    """GRPO's clipped ratio per token (2402.03300), with INTELLECT-2's two-sided clipping."""

    name: Literal["grpo"] = Field("grpo", description="Clip the ratio of every token.")
    epsilon_low: float = Field(0.2, gt=0, lt=1, description="Clip a ratio below 1 - this.")
    epsilon_high: float = Field(0.2, gt=0, description="Clip a ratio above 1 + this.")
    delta: float | None = Field(4.0, gt=1, description="Most ratio if the advantage is negative; null (JSON): any.")

    @model_validator(mode="after")
    def _delta_beyond_the_clip_range(self) -> "GrpoConfig":
        if self.delta is not None and self.delta <= 1 + self.epsilon_high:
            raise ValueError("delta must exceed 1 + epsilon_high, or be null for one-sided clipping")
        return self


class GspoConfig(Document):
    """GSPO (2507.18071): the clipped ratio of a whole sequence, the geometric mean of its tokens' ratios."""

    name: Literal["gspo"] = Field("gspo", description="Clip a sequence's ratio; needs `normaliser` sequences.")
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
AdvantageName = Literal["mean", "normalised", "leave_one_out", "maxrl", "none"]


class KlConfig(Document):
    """A penalty on leaving a reference: the base model, or a `teacher` to distil (on-policy, `unbiased`). `unbiased`:
    k3 weighted by the ratio, whose expected gradient is that of KL(policy ‖ reference); `k3`: as GRPO's paper has it,
    whose gradient is that of KL(reference ‖ policy)."""

    coefficient: float = Field(0.0, ge=0, description="Weight of the penalty.")
    teacher: str = Field("", description="A model with the same tokenizer, a folder or Hugging Face id, to learn from.")
    estimator: Literal["unbiased", "k3"] = Field("unbiased", description="How the divergence is estimated.")


class MaskConfig(Document):
    """Tokens without loss, because the policy before the step disagrees with their file. Bounded is π_old / π_sampled
    of the token (`token`: IcePop, 2510.18855), its geometric mean over the sequence (`sequence`: masked importance
    sampling), or the mean of exp |ln| of it over the sequence (`rollout`: drops whole rollouts, as NeMo-RL does)."""

    by: Literal["token", "sequence", "rollout"] = Field("rollout", description="What is bounded.")
    low: float = Field(0.0, ge=0, lt=1, description="Least value that counts.")
    high: float = Field(2.0, gt=1, description="Greatest value that counts.")


class OverlongConfig(Document):
    """DAPO's penalty on answers that come close to the longest one (2503.14476): it grows from 0 to `penalty` over the
    last `buffer` tokens."""

    buffer: int = Field(ge=1, description="Tokens before `work.max_new_tokens` over which the reward falls.")
    penalty: float = Field(1.0, gt=0, description="Reward that an answer of the greatest length loses.")


class AlgorithmConfig(Document):
    """What one update minimises.

    `normaliser`: each token's loss divided by the minibatch's tokens (`tokens`), by the number of its sequences times
    the length of its own (`sequences`), or by the number of sequences times `constant_length` (`constant`).
    `importance_cap` bounds π_old / π_sampled.
    """

    loss: LossConfig = Field(GrpoConfig(), description="Policy loss: grpo, gspo, cispo or dppo.")
    advantage: AdvantageName = Field("mean", description="How the rewards of one problem's answers become advantages.")
    normaliser: Literal["tokens", "sequences", "constant"] = Field("tokens", description="What divides a token's loss.")
    constant_length: int | None = Field(None, ge=1, description="Tokens of the constant, with `normaliser` constant.")
    importance_cap: float = Field(2.0, ge=0, description="Most weight of a file from an older policy; 0: all weigh 1.")
    masks: Annotated[tuple[MaskConfig, ...], Field(max_length=8)] = Field(
        (), description="Leave out what the files' log-probabilities disagree on; repeat the table for several."
    )
    entropy_coefficient: float = Field(0.0, ge=0, description="Weight of the entropy bonus.")
    kl: KlConfig = Field(KlConfig(), description="Penalty on leaving the base model, or a teacher.")

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
        if self.kl.teacher and not self.kl.coefficient:
            raise ValueError("kl.teacher teaches nothing without a kl.coefficient")
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
    """How a gradient becomes an update."""

    method: MethodConfig = Field(AdamWConfig(), description="Optimizer: adamw or muon.")
    schedule: ScheduleConfig = Field(ScheduleConfig(), description="Learning rate over the updates of a run.")
    grad_clip: float = Field(0.5, gt=0, description="Largest norm of a gradient.")


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
    max_off_policy_steps: int = Field(2, ge=0, le=16, description="Steps that a file may be old, up to `max_lag`.")
    minibatches: int = Field(1, ge=1, description="Weight updates in each step.")
    filter: OnlineFilter | None = Field(None, description="Wait for problems whose answers have different rewards.")
    lora: LoraConfig | None = Field(None, description="Train low-rank additions instead of all weights.")
    overlong: OverlongConfig | None = Field(None, description="Penalise answers that nearly find no end.")
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


# Problems: a filter keeps some of the candidates 0 … n − 1


class ProblemFilter(Document):
    """The candidates that an offline filter kept (`muster env filter`), and how anybody can make the choice again."""

    rule: Literal["solve-rate"] = Field("solve-rate", description="How the problems were chosen.")
    candidates: int = Field(ge=1, le=MAX_CANDIDATES, description="Number of problems that were tried.")
    kept: str = Field(description="Base64 of a bit for each candidate, the first in the first byte's highest bit.")
    model: str = Field("", max_length=200, description="SHA-256 of the files of the model that tried them.")
    samples: int = Field(8, ge=1, le=1024, description="Tries at each problem.")
    lowest: float = Field(0.125, ge=0, le=1, description="Least share of solved tries of a kept problem.")
    highest: float = Field(0.75, ge=0, le=1, description="Greatest share of solved tries of a kept problem.")
    report: HexOrEmpty = Field("", description="SHA-256 of the filter's record of solved tries.")

    @classmethod
    def of(cls, candidates: int, kept: tuple[int, ...], **facts: object) -> Self:
        """Return the filter that keeps these candidates."""
        bits = np.zeros(candidates, dtype=np.uint8)
        bits[list(kept)] = 1
        encoded = base64.b64encode(np.packbits(bits).tobytes()).decode("ascii")
        return cls.model_validate({"candidates": candidates, "kept": encoded, **facts})

    @model_validator(mode="after")
    def _canonical(self) -> Self:
        if self.lowest > self.highest:
            raise ValueError("`lowest` is above `highest`")
        if not _kept(self.candidates, self.kept).size:
            raise ValueError("no candidate is kept")
        return self

    @property
    def kept_candidates(self) -> tuple[int, ...]:
        """The kept candidates, ascending."""
        return tuple(_kept(self.candidates, self.kept).tolist())


def candidate_seed(candidate: int) -> int:
    """Return the seed of a generator's candidate: the same for every pool, chosen by nobody."""
    return words(tagged_hash("muster/candidate/1", candidate), 1)[0]


@lru_cache(maxsize=8)  # of 16 MiB at most: the documents are strangers'
def _kept(candidates: int, kept: str) -> NDArray[np.uint32]:
    """Return the candidates whose bit is set, ascending. Raises ValueError unless `kept` is base64 of one bit each."""
    try:
        data = base64.b64decode(kept, validate=True)
    except ValueError:
        raise ValueError("`kept` is not base64") from None
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8), count=candidates)
    if base64.b64encode(np.packbits(bits).tobytes()).decode("ascii") != kept:
        raise ValueError(f"`kept` is not the base64 of {candidates} bits")
    return np.flatnonzero(bits).astype(np.uint32)


class Curriculum(Document):
    """Which problems are masked. Rates are thousandths of solved tries; both bounds are included in what is drawn."""

    tries: int = Field(8, ge=1, le=1 << 16, description="Tries before a problem can be masked.")
    lowest: int = Field(125, ge=0, le=1000, description="Mask as too hard below so many thousandths of solved tries.")
    highest: int = Field(875, ge=0, le=1000, description="Mask as too easy above so many thousandths of solved tries.")
    solved: float = Field(1.0, gt=0, le=1, description="Task reward from which on a try counts as solved.")
    window: int = Field(16, ge=1, le=1024, description="Policy steps whose files count, and that a mask lasts.")
    most: int = Field(750, ge=1, le=900, description="Most thousandths of the problems that are masked at a time.")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.lowest > self.highest:
            raise ValueError(f"`lowest` is {self.lowest}, above `highest`, {self.highest}")
        if self.lowest == 0 and self.highest == 1000:
            raise ValueError("`lowest` 0 and `highest` 1000 let every problem fit: leave `curriculum` out")
        return self


# Environments, and which problem of which of them a problem seed stands for


class EnvironmentConfig(Document):
    """One environment; its `targets`, `length_alpha` and `advantage` replace the pool's."""

    name: EnvironmentName = Field(description="Environment, such as reasoning_gym/chain_sum.")
    label: Label = Field("", description="Name in metrics and reports; not set: the environment's.")
    weight: int = Field(1, ge=1, le=1 << 16, description="Share of the problems, relative to other weights.")
    params: dict[str, Any] = Field(default_factory=dict, description="The environment's own parameters.")
    content: HexOrEmpty = Field("", description="SHA-256 of the file that defines it; a machine with another stops.")
    rows: int = Field(0, ge=0, le=MAX_ROWS, description="Problems in its data file; 0 where seeds make problems.")
    held_out: int = Field(0, ge=0, description="How many of these, the last ones, are kept for evaluation.")
    problems: ProblemFilter | None = Field(None, description="Draw from these problems only (muster env filter).")
    curriculum: Curriculum | None = Field(
        None, description="Mask problems that the run's models always or never solve; needs `rows` or `problems`."
    )
    targets: tuple[PositiveInt, ...] | None = Field(
        None, max_length=64, description="Its answer lengths, instead of the pool's."
    )
    length_alpha: float | None = Field(None, ge=0, description="Reward lost per token off target, not the pool's.")
    advantage: AdvantageName | None = Field(None, description="How rewards become advantages, instead of the run's.")
    advantage_scale: float = Field(1.0, gt=0, le=100, description="Factor on the advantages of its answers.")

    @model_validator(mode="after")
    def _rows_fit(self) -> Self:
        if self.held_out and self.held_out >= self.rows:
            raise ValueError(f"`held_out` is {self.held_out} of {self.rows} `rows`: nothing is left to work on")
        if self.rows and self.problems is not None and self.problems.candidates > self.drawn_rows:
            raise ValueError(f"`problems.candidates` are {self.problems.candidates}, of {self.drawn_rows} rows")
        if self.curriculum is not None and not self.numbered:
            raise ValueError("`curriculum` needs problems that come again: name a data file's `rows`, or `problems`")
        return self

    @property
    def called(self) -> str:
        """What people read."""
        return self.label or self.name

    @property
    def drawn_rows(self) -> int:
        """The rows that work is drawn from; 0 where a problem is made from any seed."""
        return self.rows - self.held_out

    @property
    def numbered(self) -> int:
        """How many numbers its problems have: rows that work is drawn from, or all candidates of a filter; 0 where a
        problem is made from any seed."""
        return self.drawn_rows if self.problems is None else self.problems.candidates

    @property
    def kept(self) -> int:
        """How many of these work is drawn from."""
        return self.drawn_rows if self.problems is None else len(_kept(self.problems.candidates, self.problems.kept))

    def number(self, draw: int) -> int:
        """Return the number of the problem that the 64-bit `draw` stands for in work; without numbers the draw."""
        if self.problems is not None:
            kept = _kept(self.problems.candidates, self.problems.kept)
            return int(kept[draw % len(kept)])
        return draw % self.drawn_rows if self.rows else draw

    def candidate(self, number: int) -> int:
        """Return the environment's own seed of candidate `number` of a filter: a row, or a public hash."""
        return number if self.rows else candidate_seed(number)

    def own_seed(self, draw: int, held_out: bool = False) -> int:
        """Return which of its problems the 64-bit `draw` stands for: a row, a kept candidate, or the number itself.
        With `held_out`: of those that work is not drawn from."""
        if held_out and self.rows:
            return self.drawn_rows + draw % self.held_out if self.held_out else draw % self.rows
        if held_out:
            return draw
        return self.number(draw) if self.problems is None else self.candidate(self.number(draw))


@dataclass(frozen=True)
class Drawn:
    """A problem: the place of its environment in the pool's list, and the environment's own seed of it, or row."""

    environment: int
    seed: int


def chosen_environment(weights: Sequence[int], problem_seed: int) -> int:
    """Return the place of the environment that a problem seed falls to: each gets its weight's share of the 2⁶⁴ values
    of a public hash, to within one part in 2⁴²."""
    if len(weights) == 1:
        return 0
    (number,) = words(tagged_hash("muster/environment/1", problem_seed), 1)
    number %= sum(weights)
    return next(index for index, bound in enumerate(accumulate(weights)) if number < bound)


def drawn(environments: Sequence[EnvironmentConfig], problem_seed: int, held_out: bool = False) -> Drawn:
    """Return the problem that a problem seed, 0 ≤ seed < 2⁶⁴, stands for."""
    index = chosen_environment([environment.weight for environment in environments], problem_seed)
    return Drawn(index, environments[index].own_seed(problem_seed, held_out))


# The document


class ChatTurn(Document):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"] = Field(description="Who speaks.")
    content: str = Field(description="The message.")


class ModelConfig(Document):
    """Which model: a Hugging Face id or a local folder; weights travel by manifest, not by this name."""

    source: str = Field(description="The model's folder, or its id on huggingface.co.")
    license: str = Field("unknown", description="The model's licence, as nodes see it before they join.")
    dtype: Literal["float32", "bfloat16"] = Field("float32", description="What everybody computes in.")
    prompt_template: str = Field("{question}", description="Prompt; {question} stands for the problem.")
    chat_template: bool = Field(False, description="Put the prompt into the chat template of the model's tokenizer.")
    turns: tuple[ChatTurn, ...] = Field((), description="Messages before the question; they need a chat template.")
    answer_after: str = Field("", description="Only text after this mark, such as </think>, is the answer; empty: all.")

    @model_validator(mode="after")
    def _turns_need_a_template(self) -> Self:
        if self.turns and not self.chat_template:
            raise ValueError("turns are rendered by the chat template; set chat_template to true, or leave them out")
        return self


class EvaluationSet(Document):
    """Held-out problems, of the pool's own environments unless another is named."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,31}$", description="Name in metrics and reports.")
    environment: EnvironmentConfig | None = Field(None, description="Another environment than the pool's own.")
    problems: int = Field(256, ge=1, le=1 << 20, description="Number of problems.")
    samples: int = Field(1, ge=1, le=1024, description="Tries at each problem.")
    temperature: float | None = Field(None, gt=0, le=10, description="Sampling temperature; not set: the pool's.")
    solved: float = Field(1.0, gt=0, le=1, description="Task reward from which on a try counts as solved.")


class EvaluationConfig(Document):
    """What is measured of the base model, of every `every`-th policy step and of the last one."""

    every: int = Field(0, ge=0, description="Measure every so many steps; 0: only the base model and the last step.")
    sets: Annotated[tuple[EvaluationSet, ...], Field(min_length=1, max_length=16)] = Field(
        (EvaluationSet(name="held-out"),), description="Held-out sets; the first is the run's reward."
    )
    stop_at: float | None = Field(None, description="End the run once a measured step has this reward.")

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        if len({evaluation_set.name for evaluation_set in self.sets}) < len(self.sets):
            raise ValueError("two evaluation sets have one name")
        if self.stop_at is not None and not self.every:
            raise ValueError("`stop_at` needs `every`: without it no step but the last is measured")
        return self

    def due(self, step: int, last: int) -> bool:
        """Return whether policy step `step` of a run that ends at step `last` is measured."""
        return step in (0, last) or (self.every > 0 and step % self.every == 0)


class WorkConfig(Document):
    """The shape of one rollout file (length tiers: protocol/seeds.py)."""

    problems_per_file: int = Field(16, ge=1, le=4096, description="Problems in one file.")
    samples_per_problem: int = Field(
        8, ge=1, le=256, description="Answers to each problem. A file holds the product of both."
    )
    max_new_tokens: int = Field(64, ge=1, le=131072, description="Longest answer, in tokens.")
    max_prompt_tokens: int = Field(256, ge=1, le=131072, description="Longest prompt, in tokens.")
    temperature: float = Field(1.0, gt=0, le=10, description="Sampling temperature.")
    targets: tuple[PositiveInt, ...] = Field((), max_length=64, description="Lengths to ask for, one for each problem.")
    length_tiers: tuple[TargetLengths, ...] = Field(
        (), max_length=16, description="Instead of `targets`: lengths for each tier of nodes, weakest first."
    )
    length_alpha: float = Field(0.0, ge=0, description="Reward lost for every token that an answer is off its target.")

    @model_validator(mode="after")
    def _budgets(self) -> Self:
        if self.targets and self.length_tiers:
            raise ValueError("`targets` and `length_tiers` exclude one another")
        longest = max((length for lengths in (self.targets, *self.length_tiers) for length in lengths), default=0)
        if longest > self.max_new_tokens:
            raise ValueError(f"a target of {longest} tokens, but `max_new_tokens` is {self.max_new_tokens}")
        means = [sum(lengths) / len(lengths) for lengths in self.length_tiers]
        if means != sorted(means):
            raise ValueError("`length_tiers` go from the weakest nodes, with the shortest targets, to the strongest")
        return self

    @property
    def rows(self) -> int:
        return self.problems_per_file * self.samples_per_problem

    @property
    def units(self) -> int:
        """The most output tokens of a file."""
        return self.rows * self.max_new_tokens

    @property
    def making_seconds(self) -> float:
        """How long a node may take for a file: as long as one does that samples SLOW_NODE tokens a second, or ten
        minutes."""
        return max(600.0, self.units / SLOW_NODE)


class ChecksConfig(Document):
    """Thresholds of the validator's checks; defaults are for fp32 compute on the broadcast weights.

    A figure at its `*_reject` or beyond is fraud. docs/design/verification.md says which honest distributions they
    were chosen from.
    """

    eos_probability_min: float = Field(
        1e-4, ge=0, le=1, description="Least probability of an EOS that noise did not pick."
    )
    exponent_mismatches_reject: float = Field(
        0.25, gt=0, description="Differing exponents of proofs, mean over chunks."
    )
    exponent_mismatches_chunk_reject: float = Field(4.0, gt=0, description="Differing exponents, worst 32-token chunk.")
    mantissa_mean_reject: float = Field(0.012, gt=0, description="Difference of their mantissas, mean over chunks.")
    mantissa_mean_chunk_reject: float = Field(0.2, gt=0, description="Difference of their mantissas, worst chunk.")
    sampling_gap_reject: float = Field(0.01, gt=0, description="Score gap to the token the noise picks, worst token.")
    sampling_miss_rate_reject: float = Field(0.005, gt=0, description="Share of tokens that the noise did not pick.")
    logprob_error_reject: float = Field(0.005, gt=0, description="Error of a claimed log-probability, worst token.")
    logprob_mean_reject: float = Field(2e-5, gt=0, description="Error of claimed log-probabilities, mean over tokens.")
    distribution_nats_reject: float = Field(25.0, gt=0, description="Improbability of the text in nats.")
    unsure_band: float = Field(0.5, gt=0, lt=1, description="Share of a threshold from which a vote is `unsure`.")
    audit_rate: int | None = Field(
        None, ge=1, le=65536, description="Audit rate of 65536 at which thresholds were measured, the terms' own."
    )

    def misfit(self, audit_rate: int) -> ConfigError | None:
        """Return why honest files of a pool with this audit rate (of 65536) might be refused: means of other rows, in
        passes of another shape, stray otherwise."""
        if self.audit_rate in (None, audit_rate):
            return None
        what = f"its thresholds were measured at an audit rate of {self.audit_rate}, its terms have {audit_rate}"
        return ConfigError(what, f"measure them with `muster pool calibrate --audit-rate {audit_rate} --apply`")


SPARED_MISSES = 8
"""Misses, tokens that the noise did not pick, which are no rate yet. Where honest work has 0.3 times the share that is
refused, those of any number of tokens ever exceed that share by so many with probability e^(−16) (Lundberg's bound)."""

BF16_CHECKS = ChecksConfig(
    exponent_mismatches_reject=3.2,
    exponent_mismatches_chunk_reject=23.0,
    mantissa_mean_reject=1.4,
    mantissa_mean_chunk_reject=9.0,
    sampling_gap_reject=1.0,
    sampling_miss_rate_reject=0.05,
    logprob_error_reject=1.8,
    logprob_mean_reject=0.028,
)
"""Thresholds for the demo's trained model in bfloat16, from a calibration of vLLM against transformers (90 files of 128
rollouts, 1e-6 false rejects per file, safety factor 1.5). Another model needs its own: `muster pool calibrate`."""


class WeightsConfig(Document):
    """How policy steps travel: as a delta from the step before and one from the last snapshot, where these are smaller
    than the full weights. Step 0 is always published in full."""

    snapshot_every: int = Field(8, ge=1, le=16, description="Publish every so many steps in full too; 1: all of them.")
    delta_min_bytes: int = Field(1 << 20, ge=0, description="Weights of fewer bytes always travel whole.")


class DataConfig(Document):
    """What a data pool buys: it trains nothing, and ends once it has it."""

    rollouts: int = Field(ge=1, le=1 << 40, description="Verified rollouts to buy, rounded up to whole files.")


class PoolConfig(Document):
    """Everything a stranger needs to redo a pool's work, besides weights. With `data` it is a data pool: `train` and
    `evaluation` do nothing. With `evidence` anybody can add up a node's files (docs/design/verification.md)."""

    version: Literal[1] = Field(1, description="Version of this format.")
    name: str = Field(description="Name that people see.")
    model: ModelConfig = Field(description="The model to train.")
    environments: Annotated[tuple[EnvironmentConfig, ...], Field(min_length=1, max_length=MAX_ENVIRONMENTS)] = Field(
        description="Where problems come from and how answers score; repeat the table for several."
    )
    work: WorkConfig = Field(WorkConfig(), description="The shape of a rollout file: the unit of work and pay.")
    checks: ChecksConfig = Field(ChecksConfig(), description="Thresholds of fraud (see `muster pool calibrate`).")
    train: TrainConfig = Field(TrainConfig(), description="How accepted files change the model.")
    evaluation: EvaluationConfig = Field(EvaluationConfig(), description="What is measured on problems kept for it.")
    weights: WeightsConfig = Field(WeightsConfig(), description="How policy steps travel to nodes and validators.")
    data: DataConfig | None = Field(None, description="Set it for a pool that buys rollouts and trains nothing.")
    evidence: EvidenceConfig | None = Field(None, description="Set it to judge a node by all of its files together.")
    scoring_versions: Annotated[dict[ScoringName, ScoringVersion], Field(max_length=64)] = Field(
        default_factory=dict, description="Versions that decide scores; a machine with others does no work."
    )

    @model_validator(mode="after")
    def _trainable(self) -> Self:
        if self.data is not None:
            return self
        if self.work.samples_per_problem < 2 and not self.train.algorithm.kl.teacher:
            raise ValueError("work.samples_per_problem must be at least 2: an advantage compares a problem's samples")
        if self.train.overlong and self.train.overlong.buffer > self.work.max_new_tokens:
            raise ValueError("train.overlong.buffer exceeds work.max_new_tokens")
        if self.train.minibatches > self.work.rows * self.train.files_per_step:
            raise ValueError("train.minibatches exceeds the rollouts of a step")
        chosen, most = self.train.filter, self.train.max_files * self.work.problems_per_file
        if chosen is not None and chosen.groups > most:
            raise ValueError(f"train.filter.groups is {chosen.groups}, but max_files hold {most} groups at most")
        return self

    @property
    def bought_files(self) -> int:
        """How many accepted files a data pool buys; 0 for a pool that trains."""
        return -(-self.data.rollouts // self.work.rows) if self.data is not None else 0

    @model_validator(mode="after")
    def _environments_fit(self) -> Self:
        names = [environment.called for environment in self.environments]
        if len(set(names)) < len(names):
            raise ValueError("two environments have one name; give them `label`s that differ")
        for environment in self.environments:
            if max(environment.targets or (), default=0) > self.work.max_new_tokens:
                raise ValueError(f"environment {environment.called}: a target is beyond work.max_new_tokens")
            penalty = (
                "length_alpha" if self.length_alpha_of(environment) > 0 else self.train.overlong and "train.overlong"
            )
            if self.data is None and self.advantage_of(environment) == "maxrl" and penalty:
                raise ValueError(
                    f"environment {environment.called}: advantage maxrl, but {penalty} makes rewards negative"
                )
            if self.advantage_of(environment) == "none" and not self.train.algorithm.kl.teacher:
                raise ValueError(f"environment {environment.called}: advantage none, and no kl.teacher to learn from")
        return self

    @model_validator(mode="after")
    def _curricula_fit(self) -> Self:
        if self.data is not None and self.curricula:
            raise ValueError("a data pool draws from all problems; leave `curriculum` out")
        total = sum(environment.weight for environment in self.environments)
        for environment in self.curricula.values():
            if environment.weight * LEAST_SHARE < total:
                what = f"`weight` is {environment.weight} of {total}, and a `curriculum` takes 1/{LEAST_SHARE} at least"
                raise ValueError(f"environment {environment.called}: {what}")
        if any(
            evaluation_set.environment is not None and evaluation_set.environment.curriculum is not None
            for evaluation_set in self.evaluation.sets
        ):
            raise ValueError("an evaluation set draws the same problems every time; leave its `curriculum` out")
        if (count := sum(environment.numbered for environment in self.curricula.values())) > MAX_ROWS:
            raise ValueError(f"curricula of {count} problems; {MAX_ROWS} fit into the table that goes with every step")
        return self

    @property
    def curricula(self) -> dict[int, EnvironmentConfig]:
        """Place → environment, of those that have a curriculum."""
        return {
            index: environment
            for index, environment in enumerate(self.environments)
            if environment.curriculum is not None
        }

    @property
    def without_curricula(self) -> Self:
        """The same where all problems are drawn, for work that belongs to no policy step."""
        plain = tuple(environment.model_copy(update={"curriculum": None}) for environment in self.environments)
        return self.model_copy(update={"environments": plain})

    def advantage_of(self, environment: EnvironmentConfig) -> AdvantageName:
        return environment.advantage or self.train.algorithm.advantage

    def length_alpha_of(self, environment: EnvironmentConfig) -> float:
        return self.work.length_alpha if environment.length_alpha is None else environment.length_alpha

    @property
    def environment_names(self) -> str:
        return ", ".join(environment.called for environment in self.environments)

    def canonical(self) -> bytes:
        return canonical_json(self.model_dump(mode="json"))

    @property
    def digest(self) -> bytes:
        """SHA-256 of the canonical document: the pool's `configHash`."""
        return hashlib.sha256(self.canonical()).digest()

    @classmethod
    def parse(cls, data: bytes, where: str) -> Self:
        return parse_document(data, cls, where)

    @classmethod
    def load(cls, path: Path) -> Self:
        return load_document(path, cls)
