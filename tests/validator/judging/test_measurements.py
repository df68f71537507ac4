"""What becomes of a prefill's errors."""

import sys
from collections.abc import Iterator
from dataclasses import astuple, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engines.base import Prefilled
from engines.prefill import Sequences
from protocol.evidence.figures import unexplained
from protocol.sampling.noise import verify_rows
from protocol.toploc.proofs import build, verify
from tests.validator.world import context
from validator.judging import measurements
from validator.judging.measurements import _mantissas, measure, row_figures


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
    found = row_figures(row, replace(measured, gaps=gaps, logprobs=own, expected=(-0.7,) * count))
    assert found.unexplained == 1.0
    nearly = tuple(a - (0.01 if place == 1 else 0.0) for place, a in enumerate(measured.logprobs))
    found = row_figures(row, replace(measured, gaps=gaps, logprobs=nearly, expected=(-0.7,) * count))
    share = unexplained(0.2, row.logprobs[1], nearly[1], -0.7)
    assert 0 < share < 1
    assert abs(found.unexplained - 1.0 - share) < 1e-5
    assert row_figures(row, measured).unexplained == 0.0


class RandomEngine:
    """A model of one matrix. `projected`: of how many rows logits were made, one call after the other."""

    def __init__(self, vocabulary: int) -> None:
        self.source = torch.Generator().manual_seed(5)
        self.head = torch.randn(vocabulary, 128, generator=self.source) / 8
        self.projected: list[int] = []

    def prefill(self, sequences: Sequences) -> Iterator[Prefilled]:
        for _, output in sequences:
            yield Prefilled(torch.randn(len(output), 128, generator=self.source), self.project)

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
    monkeypatch.setitem(sys.modules, "protocol.sampling.cuda_verify", SimpleNamespace(verify=judged))
    monkeypatch.setattr("protocol.sampling.cuda_verify", sys.modules["protocol.sampling.cuda_verify"], raising=False)
    assert measure(honest, on_device) == measure(honest, on_cpu)
