"""What becomes of a prefill's errors."""

import pytest
import torch

from protocol.toploc.proofs import build, verify
from validator.judging.measurements import _mantissas


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
