"""Where attacks are tried: a pool without a chain, its verifier, and an engine that remembers what it generated.

Files have 16 rollouts, an eighth of the demo's: means over few rollouts separate worst.
"""

import hashlib
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engines.base import Completion, Request, Sampling
from engines.hf import TransformersEngine
from environments.pool import PoolEnvironments
from protocol.config import BF16_CHECKS, ChecksConfig, EnvironmentConfig, ModelConfig, PoolConfig, WorkConfig
from protocol.identity import PoolId, WorkId
from protocol.seeds import AUDIT_EVERYTHING, Work
from protocol.verdict import Verdict
from runtime.turns import RolloutTask, converse
from trainer.model.tiny_model import tiny_model_config
from validator.judging.checks import SubmissionFacts
from validator.judging.pipeline import judge
from worker.produce import Produced, Producer

Progress = Callable[[str], None]
Known = dict[tuple[bytes, Sampling, Request], Completion]
ENVIRONMENT = EnvironmentConfig(
    name="reasoning_gym/chain_sum", params={"min_terms": 3, "max_terms": 4, "min_digits": 1, "max_digits": 1}
)
WORK = WorkConfig(problems_per_file=4, samples_per_problem=4, max_new_tokens=48, max_prompt_tokens=96)
FULL_WORK = WORK.model_copy(update={"problems_per_file": 16, "samples_per_problem": 8})
FLOAT32, BFLOAT16 = "float32", "bfloat16"
AHEAD = 4
"""Files whose completions are generated together."""


class Remembering(TransformersEngine):
    """An engine that generates each (weights, sampling, request) once, since most attacks spoil the same honest files.
    `known` is shared by engines of one arithmetic."""

    def __init__(self, known: Known, dtype: str = FLOAT32) -> None:
        super().__init__(dtype)
        self._known, self._weights = known, b""

    def load(self, weights: Path) -> None:
        super().load(weights)
        parts = [path.read_bytes() for path in (*sorted(weights.glob("*.safetensors")), weights / "config.json")]
        self._weights = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).digest()

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        keys = [(self._weights, sampling, request) for request in requests]
        missing = [key for key in dict.fromkeys(keys) if key not in self._known]
        completions = super().generate([request for _, _, request in missing], sampling)
        self._known.update(zip(missing, completions, strict=True))
        return [self._known[key] for key in keys]


@dataclass(frozen=True, eq=False)
class OfflinePool:
    """A pool, its model folder, and the verifier, which really judges every file."""

    config: PoolConfig
    folder: Path
    verifier: TransformersEngine
    environment: PoolEnvironments
    dtype: str
    known: Known = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        folder: Path,
        dtype: str,
        model: ModelConfig | None = None,
        work: WorkConfig = WORK,
        environment: EnvironmentConfig = ENVIRONMENT,
    ) -> "OfflinePool":
        checks = BF16_CHECKS if dtype == BFLOAT16 else ChecksConfig()
        config = PoolConfig(
            name="attacks", model=model or tiny_model_config(), environments=(environment,), work=work, checks=checks
        )
        verifier = TransformersEngine(dtype=dtype, max_batch=16)
        verifier.load(folder)
        return cls(config, folder, verifier, PoolEnvironments.of(config, folder), dtype)

    def engine(self) -> Remembering:
        return Remembering(self.known, self.dtype)

    def honest(self) -> Producer:
        producer = Producer(self.config, self.engine())
        producer.load(self.folder)
        return producer

    def verdict(self, produced: Produced, work: Work) -> Verdict:
        facts = SubmissionFacts(work, produced.commitment, work.id.counter, b"\x09" * 32, AUDIT_EVERYTHING)
        return judge(facts, produced.data, self.config, self.environment, self.verifier)

    def files(self, producer: Producer, count: int) -> Iterator[tuple[Work, Produced]]:
        """Yield `count` files of a producer that has its weights, completions of a few files generated together."""
        for start in range(0, count, AHEAD):
            works = [work_of(counter) for counter in range(start, min(count, start + AHEAD))]
            plans = [planned for work in works for planned in Producer.plan(producer, work)]
            tasks = [
                RolloutTask(planned.assignment.problem_seed, planned.prompt, planned.noise_key) for planned in plans
            ]
            limit = self.config.work.max_new_tokens
            converse(producer.engine, producer.environment, tasks, producer.sampling, limit)
            for work in works:
                yield work, producer.make(work)

    def row(self, name: str, producer: Producer, count: int, progress: Progress) -> dict[str, Any]:
        """Judge `count` files of a producer: how many were refused, as what, by which measurement, and how clearly.

        `margin` is the median over files of the largest ratio of a measurement to its reject threshold, `margin_low`
        the smallest; None where files fell before the prefill. `same_text` counts accepted files that hold, token for
        token, what an honest worker would have handed in.
        """
        honest = self.honest()
        verdicts, same = [], 0
        for work, produced in self.files(producer, count):
            verdicts.append(self.verdict(produced, work))
            if verdicts[-1].code.is_accept:
                same += texts(produced) == texts(honest.make(work))
        codes = Counter(verdict.code.label for verdict in verdicts)
        detected = sum(not verdict.code.is_accept for verdict in verdicts)
        measured = [finding for finding in map(strongest, verdicts) if finding[0] is not None]
        ratios = [ratio for ratio, _ in measured if ratio is not None]
        by = Counter(what for _, what in map(strongest, verdicts)).most_common(1)[0][0]
        row = {"name": name, "dtype": self.dtype, "submissions": count, "detected": detected, "codes": dict(codes)}
        row |= {"same_text": same, "by": by, "margin": None, "margin_low": None}
        if ratios:
            row |= {"margin": short(statistics.median(ratios)), "margin_low": short(min(ratios))}
        progress(f"{self.dtype} {name}: {detected} of {count} {dict(codes)}, {by}, margin {row['margin']}")
        return row


def texts(produced: Produced) -> list[tuple[int, ...]]:
    return [row.output_tokens for row in produced.rollouts]


def work_of(counter: int = 0) -> Work:
    """Return the node's `counter`-th file of a pool that no chain has."""
    work = WorkId(PoolId(31337, "0x" + "22" * 20, 1), "0x" + "11" * 20, 3, counter)
    return Work(work, b"\x07" * 32, b"\x08" * 32)


def strongest(verdict: Verdict) -> tuple[float | None, str]:
    """Return the largest ratio of a verdict's measurements to their thresholds, and which; else the refusing check."""
    ratios = [
        (float(value) / threshold, f"{finding.check} {name}")
        for finding in verdict.findings
        for name, value in finding.measurements.items()
        if isinstance(threshold := finding.measurements.get(f"{name}_reject"), float | int)
        if isinstance(value, float | int | str)
    ]
    if ratios:
        ratio, what = max(ratios, key=lambda pair: math.inf if math.isnan(pair[0]) else pair[0])
        return math.inf if math.isnan(ratio) else ratio, what
    return None, next((finding.check for finding in verdict.findings if not finding.code.is_accept), "")


def short(number: float) -> float | str:
    """Round to three digits; JSON has no infinity."""
    return float(f"{number:.3g}") if math.isfinite(number) else "inf"
