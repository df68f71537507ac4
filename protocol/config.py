"""The pool's configuration document: what is trained, in which environments, and how it is checked.

Its canonical JSON's SHA-256 is the pool's immutable `configHash` on chain. Money and windows live on chain.
"""

import hashlib
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, PositiveInt, model_validator

from protocol.encoding import Document, canonical_json, load_document, parse_document
from protocol.environments import MAX_ENVIRONMENTS, MAX_ROWS, EnvironmentConfig
from protocol.evidence.null_model import EvidenceConfig
from protocol.training import AdvantageName, TrainConfig

LEAST_SHARE = 64
"""Of an environment with a curriculum: drawing another problem of it takes so many looks at most, on average."""


class ChatTurn(Document):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"] = Field(description="Who speaks.")
    content: str = Field(description="The message.")


class ModelConfig(Document):
    """Which model: a Hugging Face id or a local folder; weights travel by manifest, not by this name."""

    source: str = Field(
        description="The model's folder, or its id on huggingface.co. Weights travel by their hash, not by this name."
    )
    license: str = Field("unknown", description="The model's licence, as nodes see it before they join.")
    dtype: Literal["float32", "bfloat16"] = Field(
        "float32", description="What everybody computes in; thresholds hold for it alone."
    )
    prompt_template: str = Field("{question}", description="Prompt; {question} stands for the problem.")
    chat_template: bool = Field(False, description="Put the prompt into the chat template of the model's tokenizer.")
    turns: tuple[ChatTurn, ...] = Field(
        (), description="Messages before the question, if there is a chat template: a system prompt, worked examples."
    )
    answer_after: str = Field(
        "", description="Only text after this mark counts as the answer, such as </think>; empty: all text."
    )

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
    sets: tuple[EvaluationSet, ...] = Field(
        (EvaluationSet(name="held-out"),),
        min_length=1,
        max_length=16,
        description="Held-out sets; the first is the run's reward.",
    )

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        if len({one.name for one in self.sets}) < len(self.sets):
            raise ValueError("two evaluation sets have one name")
        return self

    def due(self, step: int, last: int) -> bool:
        """Return whether policy step `step` of a run that ends at step `last` is measured."""
        return step in (0, last) or (self.every > 0 and step % self.every == 0)


TargetLengths = Annotated[tuple[PositiveInt, ...], Field(min_length=1, max_length=64)]


class WorkConfig(Document):
    """The shape of one rollout file (length tiers: protocol/length_tiers.py)."""

    problems_per_file: int = Field(16, ge=1, le=4096, description="Problems in one file.")
    samples_per_problem: int = Field(
        8, ge=1, le=256, description="Answers to each problem. A file holds the product of both."
    )
    max_new_tokens: int = Field(64, ge=1, le=131072, description="Longest answer, in tokens.")
    max_prompt_tokens: int = Field(
        256, ge=1, le=131072, description="Longest prompt, in tokens. Prompt and answer must fit the model's context."
    )
    temperature: float = Field(1.0, gt=0, le=10, description="Sampling temperature.")
    targets: tuple[PositiveInt, ...] = Field(
        (), max_length=64, description="Answer lengths to ask for (tokens), one drawn for each problem."
    )
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


class ChecksConfig(Document):
    """Thresholds of the validator's checks; defaults are for fp32 compute on the broadcast weights.

    A figure at its `*_reject` or beyond is fraud. docs/design/verification.md says which honest distributions they
    were chosen from.
    """

    eos_probability_min: float = Field(
        1e-4, ge=0, le=1, description="An EOS less probable than this, which the noise did not choose, was cut short."
    )
    exponent_mismatches_reject: float = Field(
        0.25, gt=0, description="Differing exponents of proven activations, mean over chunks."
    )
    exponent_mismatches_chunk_reject: float = Field(
        4.0, gt=0, description="Differing exponents, worst chunk of 32 tokens."
    )
    mantissa_mean_reject: float = Field(0.012, gt=0, description="Difference of their mantissas, mean over chunks.")
    mantissa_mean_chunk_reject: float = Field(0.2, gt=0, description="Difference of their mantissas, worst chunk.")
    sampling_gap_reject: float = Field(
        0.01, gt=0, description="Score gap to the token that the noise picks, worst token."
    )
    sampling_miss_rate_reject: float = Field(0.005, gt=0, description="Share of tokens that the noise did not pick.")
    logprob_error_reject: float = Field(0.005, gt=0, description="Error of a claimed log-probability, worst token.")
    logprob_mean_reject: float = Field(2e-5, gt=0, description="Error of claimed log-probabilities, mean over tokens.")
    distribution_nats_reject: float = Field(
        25.0, gt=0, description="Improbability of the text; honest work reaches x with a chance of exp(-x)."
    )
    unsure_band: float = Field(
        0.5, gt=0, lt=1, description="From this share of a threshold on the vote is `unsure`, which counts as accepted."
    )


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
"""Thresholds for the demo's trained model computed in bfloat16, as calibration of vLLM against transformers gave them
(90 files of 128 rollouts, 1e-6 false rejects per file, safety factor 1.5). Another model needs its own:
`muster pool calibrate`. What they cannot see stands in docs/design/verification.md."""


class WeightsConfig(Document):
    """How policy steps travel: as a delta from the step before and one from the last snapshot, where these are smaller
    than the full weights. Step 0 is always published in full."""

    snapshot_every: int = Field(8, ge=1, le=16, description="Publish every so many steps in full too; 1: all of them.")
    delta_min_bytes: int = Field(1 << 20, ge=0, description="Weights of fewer bytes always travel whole.")


class DataConfig(Document):
    """What a data pool buys: it trains nothing, and ends once it has it."""

    rollouts: int = Field(
        ge=1, le=1 << 40, description="Verified rollouts to buy. Files are bought whole, so a few more may be."
    )


ScoringName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
ScoringVersion = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+!-]{0,63}$")]


class PoolConfig(Document):
    """Everything a stranger needs to redo a pool's work, besides weights. With `data` it is a data pool: `train` and
    `evaluation` do nothing. With `evidence` anybody can add up a node's files (docs/design/verification.md)."""

    version: Literal[1] = Field(1, description="Version of this format.")
    name: str = Field(description="Name that people see.")
    model: ModelConfig = Field(description="The model to train.")
    environments: tuple[EnvironmentConfig, ...] = Field(
        min_length=1,
        max_length=MAX_ENVIRONMENTS,
        description="Where problems come from and how answers score; repeat the table for several.",
    )
    work: WorkConfig = Field(
        WorkConfig(), description="The shape of one rollout file: what a node makes, and is paid for, at a time."
    )
    checks: ChecksConfig = Field(
        ChecksConfig(), description="Thresholds beyond which a file is fraud (`muster pool calibrate` measures them)."
    )
    train: TrainConfig = Field(TrainConfig(), description="How accepted files change the model.")
    evaluation: EvaluationConfig = Field(
        EvaluationConfig(), description="What is measured of the model, on problems that training never sees."
    )
    weights: WeightsConfig = Field(WeightsConfig(), description="How policy steps travel to nodes and validators.")
    data: DataConfig | None = Field(
        None, description="Set it for a data pool, which buys rollouts of the model and trains nothing."
    )
    evidence: EvidenceConfig | None = Field(
        None, description="Null models that judge a node's files together (written by calibrate --apply)."
    )
    scoring_versions: dict[ScoringName, ScoringVersion] = Field(
        default_factory=dict,
        max_length=64,
        description="Versions that decide scores; a machine with others does no work.",
    )

    @model_validator(mode="after")
    def _trainable(self) -> "PoolConfig":
        """What work and training promise one another."""
        if self.data is not None:
            return self
        if self.work.samples_per_problem < 2:
            raise ValueError("work.samples_per_problem must be at least 2: an advantage compares a problem's samples")
        if self.train.minibatches > self.work.rows * self.train.files_per_step:
            raise ValueError("train.minibatches exceeds the rollouts of a step")
        return self

    @model_validator(mode="after")
    def _filter_can_be_full(self) -> Self:
        chosen, most = self.train.filter, self.train.max_files * self.work.problems_per_file
        if self.data is None and chosen is not None and chosen.groups > most:
            raise ValueError(f"train.filter.groups is {chosen.groups}, but max_files hold {most} groups at most")
        return self

    @property
    def bought_files(self) -> int:
        """How many accepted files a data pool buys; 0 for a pool that trains."""
        return -(-self.data.rollouts // self.work.rows) if self.data is not None else 0

    @model_validator(mode="after")
    def _environments_fit(self) -> Self:
        names = [one.called for one in self.environments]
        if len(set(names)) < len(names):
            raise ValueError("two environments have one name; give them `label`s that differ")
        for one in self.environments:
            if max(one.targets or (), default=0) > self.work.max_new_tokens:
                raise ValueError(f"environment {one.called}: a target is beyond work.max_new_tokens")
            if self.data is None and self.advantage_of(one) == "maxrl" and self.length_alpha_of(one) > 0:
                raise ValueError(
                    f"environment {one.called}: advantage maxrl divides by the mean reward, and length_alpha makes "
                    "rewards negative"
                )
        return self

    @model_validator(mode="after")
    def _curricula_fit(self) -> Self:
        total = sum(one.weight for one in self.environments)
        for one in self.curricula.values():
            if self.data is not None:
                raise ValueError(
                    f"environment {one.called}: a data pool draws from all problems; leave `curriculum` out"
                )
            if one.weight * LEAST_SHARE < total:
                raise ValueError(
                    f"environment {one.called}: its `weight` is {one.weight} of {total}, a `curriculum` takes at least "
                    f"one part in {LEAST_SHARE}"
                )
        if any(one.environment is not None and one.environment.curriculum is not None for one in self.evaluation.sets):
            raise ValueError("an evaluation set draws the same problems every time; leave its `curriculum` out")
        if (count := sum(one.numbered for one in self.curricula.values())) > MAX_ROWS:
            raise ValueError(f"curricula of {count} problems; {MAX_ROWS} fit into the table that goes with every step")
        return self

    @property
    def curricula(self) -> dict[int, EnvironmentConfig]:
        """Place → environment, of those that have a curriculum."""
        return {place: one for place, one in enumerate(self.environments) if one.curriculum is not None}

    @property
    def without_curricula(self) -> Self:
        """The same where all problems are drawn: for work that belongs to no policy step."""
        plain = tuple(one.model_copy(update={"curriculum": None}) for one in self.environments)
        return self.model_copy(update={"environments": plain})

    def advantage_of(self, environment: EnvironmentConfig) -> AdvantageName:
        return environment.advantage or self.train.algorithm.advantage

    def length_alpha_of(self, environment: EnvironmentConfig) -> float:
        return self.work.length_alpha if environment.length_alpha is None else environment.length_alpha

    @property
    def environment_names(self) -> str:
        """All of them, as people read them."""
        return ", ".join(one.called for one in self.environments)

    def canonical(self) -> bytes:
        return canonical_json(self.model_dump(mode="json"))

    @property
    def digest(self) -> bytes:
        """SHA-256 of the canonical document: the pool's `configHash`."""
        return hashlib.sha256(self.canonical()).digest()

    @classmethod
    def parse(cls, data: bytes, where: str) -> "PoolConfig":
        return parse_document(data, cls, where)

    @classmethod
    def load(cls, path: Path) -> "PoolConfig":
        return load_document(path, cls)
