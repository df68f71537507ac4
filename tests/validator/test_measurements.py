"""What becomes of a prefill's errors."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from protocol.proofs.toploc import build, verify
from validator.context import CheckContext, RowMeasurements
from validator.measurements import _with_errors

ROW = RowMeasurements(0, (), (), (), (), 0.0, 0.0, None)


@pytest.mark.parametrize(("tokens", "judged"), [(33, False), (34, True)])
def test_values_next_to_zero_do_not_refuse_a_single_token(tokens: int, judged: bool) -> None:
    """Hidden states of 128 values; float32 rounding moves values next to zero by half of themselves."""
    claimed = torch.randn(tokens, 128, generator=torch.Generator().manual_seed(0))
    claimed[32:, :8] = 8e-8
    own = claimed.clone()
    own[32:, :8] *= 1.4
    if judged:
        own[32:] *= 1.5
    rollout: Any = SimpleNamespace(proofs=tuple(build(claimed.bfloat16())))
    assert verify(own.bfloat16(), rollout.proofs)[1].mantissa_mean > 1
    (found,) = _with_errors(cast(CheckContext, SimpleNamespace(rollouts=[rollout])), [(ROW, own.bfloat16())])
    assert found.mantissas[0] == 0
    assert (found.mantissas[1] > 1) == judged
