"""What a calibration measures of a file is what a validator's pass finds, to the bit and at every audit rate."""

from dataclasses import replace
from typing import Any

import pytest

from calibration.measuring import context_of, measure_file
from engines.hf import TransformersEngine
from environments.pool import PoolEnvironments
from protocol.encoding import tagged_hash
from protocol.evidence.figures import Sum, figures_of, rounded
from protocol.seeds import AUDIT_EVERYTHING
from runtime.process import EngineConfig
from tests.validator import tiny
from validator.judging.pipeline import judge
from worker.produce import Producer

WORK = tiny.CONFIG.work.model_copy(update={"problems_per_file": 8, "samples_per_problem": 4})
CONFIG = tiny.CONFIG.model_copy(update={"work": WORK})


class Counting:
    """An engine that remembers how many sequences it prefilled."""

    def __init__(self, engine: TransformersEngine) -> None:
        self._engine, self.prefilled = engine, 0
        self.info = engine.info

    def prefill(self, sequences: Any) -> Any:
        self.prefilled += len(sequences)
        return self._engine.prefill(sequences)


@pytest.mark.parametrize("rate", [AUDIT_EVERYTHING, AUDIT_EVERYTHING // 4, AUDIT_EVERYTHING // 16])
def test_calibration_and_judge_measure_the_same(rate: int) -> None:
    """In bfloat16 a row rounds otherwise in a pass of another shape. A validator may be set up for other batches."""
    producer = Producer(CONFIG, TransformersEngine("bfloat16", max_batch=16))
    producer.load(tiny.model_folder())
    made, work = producer.make(tiny.work_of()), tiny.work_of()
    context = context_of(work, made.data, CONFIG, PoolEnvironments.of(CONFIG, tiny.model_folder()), rate)
    engines = [EngineConfig(dtype="bfloat16", batch=batch).make() for batch in (64, 3)]
    for one in engines:
        one.load(tiny.model_folder())
    calibrator: Any = Counting(engines[0])  # type: ignore[arg-type]
    sample = measure_file(context, calibrator, 16, draws=3)
    lanes = [
        context.facts.lane_seed,
        *(tagged_hash("muster/calibration-draw/1", context.facts.lane_seed, n) for n in (1, 2)),
    ]
    contexts = [replace(context, facts=replace(context.facts, lane_seed=lane)) for lane in lanes]
    assert calibrator.prefilled == sum(len(one.audited) for one in contexts)
    assert len(sample.rows) == len(context.audited)
    assert rate == AUDIT_EVERYTHING or len({tuple(one.audited) for one in contexts}) > 1
    differing = 0.0  # of all draws: the few rows of one may come out alike on some processors
    for drawn, figures in zip(contexts, sample.draws, strict=True):
        verdict = judge(drawn.facts, made.data, CONFIG, context.environment, engines[1])
        found = figures_of(verdict)
        differing += found["mantissas"].total
        for name, units in figures.items():
            assert len(units) == (1 if name == "coherence" else WORK.problems_per_file)
            whole = Sum.over(units)
            assert (found[name].total, found[name].count) == (rounded(whole.total), whole.count), name
    assert differing > 0, "what is compared is not nothing"
