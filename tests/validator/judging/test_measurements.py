"""What becomes of a prefill's errors."""

from dataclasses import replace

import pytest
import torch

from engines.base import EngineInfo
from protocol.evidence.figures import BETS, FIGURES, unexplained
from protocol.evidence.null_model import Bet, PairNullModel, StepNullModels
from protocol.seeds import audit_sample
from protocol.toploc.proofs import build, verify
from tests.validator.world import context, with_measurements, with_row
from validator.judging.measurements import _mantissas, evidence, file_figures


@pytest.mark.parametrize(("tokens", "judged"), [(33, False), (34, True)])
def test_values_next_to_zero_do_not_refuse_a_single_token(tokens: int, judged: bool) -> None:
    """Hidden states of 128 values; float32 rounding moves values next to zero by half of themselves."""
    claimed = torch.randn(tokens, 128, generator=torch.Generator().manual_seed(0))
    claimed[32:, :8] = 8e-8
    own = claimed.clone()
    own[32:, :8] *= 1.4
    if judged:
        own[32:] *= 1.5
    errors = verify(own.bfloat16(), build(claimed.bfloat16()))
    assert errors[1].mantissa_mean > 1
    found = _mantissas(errors, tokens)
    assert found[0] == 0
    assert (found[1] > 1) == judged


def test_misses_are_explained_by_their_own_tokens() -> None:
    """The second token's miss is explained by its ln p, the third's is not: claimed is our own."""
    honest = context()
    row, measured = next(pair for pair in zip(honest.rollouts, honest.measured, strict=True) if len(pair[1].gaps) > 2)
    count = len(row.output_tokens)
    own = tuple(a - (0.5 if place == 1 else 0.0) for place, a in enumerate(measured.logprobs))
    gaps = tuple(0.2 if place in (1, 2) else 0.0 for place in range(count))

    def shown(logprobs: tuple[float, ...]) -> float:
        changes = {"gaps": gaps, "logprobs": logprobs, "expected": (-0.7,) * count}
        changed = with_measurements(honest, measured.row, **changes)
        return sum(one.total for one in file_figures(changed)["unexplained"])

    assert shown(own) == 1.0
    nearly = tuple(a - (0.01 if place == 1 else 0.0) for place, a in enumerate(measured.logprobs))
    share = unexplained(0.2, row.logprobs[1], nearly[1], -0.7)
    assert 0 < share < 1
    assert shown(nearly) == pytest.approx(1.0 + share)
    assert sum(one.total for one in file_figures(honest)["unexplained"]) == 0.0


def test_only_rows_that_the_audit_drew_count() -> None:
    """A row with an ambiguous proof is part of every pass, but no draw: what an honest file repeats is not random."""
    base = context()
    forged = with_row(base, 2, proofs=base.rollouts[0].proofs[:1] + base.rollouts[2].proofs[1:])
    forged = replace(forged, facts=replace(forged.facts, audit_rate=1), measurements=None)
    (drawn,) = audit_sample(forged.facts.lane_seed, forged.facts.sequence, len(base.rollouts), 1)
    assert set(forged.audited) > {drawn}
    figures = file_figures(replace(forged, measurements=tuple(base.measured[row] for row in forged.audited)))
    assert [one.count for one in figures["gaps"]] == [len(base.rollouts[drawn].output_tokens)]


def test_a_file_pays_by_the_null_model_of_its_engines_and_its_audit_rate_alone() -> None:
    file = context()
    bets = {"gaps": (Bet(tilt=1, rate=0.5, most=9),) * BETS}
    pair = PairNullModel(worker="hf:float32:cpu", verifier="vllm:float32:cpu", bets=bets)
    models = StepNullModels(audit_rate=file.facts.audit_rate, pairs=(pair,))
    own = EngineInfo("vllm", "1", "float32", "cpu")
    tokens = sum(len(row.output_tokens) for row in file.rollouts)
    paid = evidence(file, own, models).measurements
    assert paid["gaps"] == [0.0, tokens, 0.5, *[pytest.approx(-0.5 * tokens)] * BETS]
    assert paid["mantissas"] == [0.0, sum(len(row.proofs) for row in file.rollouts)]
    for verifier, known in (
        (own, None),
        (own, models.model_copy(update={"audit_rate": 4096})),
        (replace(own, device="cuda"), models),
        (replace(own, dtype="bfloat16"), models),
    ):
        measured = evidence(file, verifier, known).measurements
        assert {len(measured[name]) for name in FIGURES} == {2}  # type: ignore[arg-type]
