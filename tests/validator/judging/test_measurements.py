"""What becomes of a prefill's errors."""

import sys
from collections.abc import Iterator
from dataclasses import astuple, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engines.base import EngineInfo, Prefilled
from engines.prefill import Sequences
from protocol.evidence.figures import BETS, FIGURES, unexplained
from protocol.evidence.null_model import Bet, PairNullModel, StepNullModels
from protocol.sampling.noise import verify_rows
from protocol.seeds import audit_sample
from protocol.toploc.proofs import build, verify
from tests.validator.world import context, with_measurements, with_row
from validator.judging import measurements
from validator.judging.measurements import evidence, file_figures, judged_chunks, measure


@pytest.mark.parametrize(("tokens", "judged"), [(1, 0), (33, 1), (34, 2)])
def test_values_next_to_zero_do_not_refuse_a_single_token(tokens: int, judged: int) -> None:
    """Hidden states of 128 values; rounding moves values next to zero by multiples of themselves, exponents too."""
    claimed = torch.randn(tokens, 128, generator=torch.Generator().manual_seed(0))
    claimed[-1, :8] = 8e-8
    own = claimed.clone()
    own[-1, :8] *= 4.5
    errors = verify(own.bfloat16(), build(claimed.bfloat16()))
    assert len(errors) == -(-tokens // 32)
    assert (errors[-1].exponent_mismatches == 8) == (tokens % 32 == 1)
    assert judged_chunks(errors, tokens) == errors[:judged]


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
    tokens = [0.0] * len(figures["gaps"])
    tokens[base.rollouts[drawn].slot] = len(base.rollouts[drawn].output_tokens)
    assert [one.count for one in figures["gaps"]] == tokens


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


class RandomEngine:
    """A model of one matrix. `projected`: of how many rows logits were made, one call after the other."""

    def __init__(self, vocabulary: int) -> None:
        self.source = torch.Generator().manual_seed(5)
        self.head = torch.randn(vocabulary, 128, generator=self.source) / 8
        self.projected: list[int] = []

    def prefill(self, sequences: Sequences) -> Iterator[Prefilled]:
        for _, output in sequences:
            yield Prefilled(torch.randn(len(output), 128, generator=self.source), len(self.head), self.project)

    def project(self, states: torch.Tensor) -> torch.Tensor:
        self.projected.append(len(states))
        return states @ self.head.T


def test_logits_of_a_long_text_are_never_in_memory_together(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = replace(context(), measurements=None)
    vocabulary, tokens = honest.environment.vocabulary, sum(len(row.output_tokens) for row in honest.rollouts)
    whole: Any = RandomEngine(vocabulary)
    expected = measure(honest, whole)
    assert whole.projected == [tokens]
    monkeypatch.setattr(measurements, "LOGITS_BYTES", 5 * 4 * vocabulary)
    small: Any = RandomEngine(vocabulary)
    found = measure(honest, small)
    assert max(small.projected) == 5
    assert sum(small.projected) == tokens
    for one, other in zip(found, expected, strict=True):
        assert one.mantissas == other.mantissas
        for name in ("gaps", "logprobs", "expected", "surprise", "overconfidence"):
            assert getattr(one, name) == pytest.approx(getattr(other, name), abs=1e-4), name


class OnDevice(torch.Tensor):
    """A tensor that only `cpu` brings to NumPy, as one on a GPU."""

    is_cuda = True

    def cpu(self, *_: Any, **__: Any) -> torch.Tensor:
        return self.as_subclass(torch.Tensor)

    def numpy(self, *_: Any, **__: Any) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first.")

    __array__ = numpy


def test_what_is_on_a_device_is_judged_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels themselves are compared in tests/protocol/sampling/test_noise_cuda.py."""
    honest = replace(context(), measurements=None)

    def judged(logits: torch.Tensor, *facts: Any) -> tuple[Any, ...]:
        assert isinstance(logits, OnDevice)
        return astuple(verify_rows(logits.cpu(), *facts))

    class DeviceEngine(RandomEngine):
        def prefill(self, sequences: Sequences) -> Iterator[Prefilled]:
            for one in super().prefill(sequences):
                yield replace(one, states=one.states.as_subclass(OnDevice))

    on_cpu: Any = RandomEngine(honest.environment.vocabulary)
    on_device: Any = DeviceEngine(honest.environment.vocabulary)
    monkeypatch.setitem(sys.modules, "protocol.sampling.cuda", SimpleNamespace(verify=judged))
    monkeypatch.setattr("protocol.sampling.cuda", sys.modules["protocol.sampling.cuda"], raising=False)
    assert measure(honest, on_device) == measure(honest, on_cpu)
