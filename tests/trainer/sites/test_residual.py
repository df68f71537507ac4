"""What is sent and what is owed: together exactly what was found, and nothing is sent that no forward pass sees."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

from protocol.sites.forms import MalformedContribution, decode_sparse, encode_sparse
from protocol.sites.layout import F32
from trainer.sites.residual import bfloat16_bits, select_visible

WEIGHTS = nps.arrays(np.float32, 200, elements=st.floats(-4, 4, width=32))
EPSILON = 2.0**-24


def weights_of(seed: int, size: int = 20_000) -> dict[str, F32]:
    return {"w": (0.05 * np.random.default_rng(seed).standard_normal(size)).astype(np.float32)}


@given(values=nps.arrays(np.float32, 50, elements=st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_bfloat16_is_torchs(values: F32) -> None:
    theirs = (torch.tensor(values) + 0.0).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
    assert (bfloat16_bits(values) == theirs).all()


@given(values=WEIGHTS, found=WEIGHTS, scale=st.sampled_from([1.0, 2.0**-7, 2.0**-12]))
def test_sent_and_owed_are_what_was_found(values: F32, found: F32, scale: float) -> None:
    gradient = (found * np.float32(scale)).astype(np.float32)
    made = select_visible({"w": values}, {"w": gradient})
    sent, residual = made.sent["w"], made.residual["w"]
    off = sent.astype(np.float64) + residual.astype(np.float64) - gradient
    size = np.abs(values.astype(np.float64)) + np.abs(gradient)
    assert (np.abs(off) <= EPSILON * EPSILON * 4 * size).all(), "no more than the rounding of a rounding"
    hidden = bfloat16_bits(values) == bfloat16_bits(values - gradient)
    assert (sent[hidden] == 0).all()
    assert residual[hidden].tobytes() == gradient[hidden].tobytes()
    assert (np.abs(residual[~hidden]) <= 2 * EPSILON * size[~hidden]).all(), "only rounding is owed of what is sent"


def test_nothing_is_lost_over_many_steps() -> None:
    """Steps far below a bfloat16's: hardly any is visible alone, all arrive."""
    weights, dice = weights_of(0), np.random.default_rng(1)
    drift = (1e-5 * dice.standard_normal(20_000)).astype(np.float32)
    total, arrived, owed, shares = np.zeros(20_000), np.zeros(20_000), None, []
    for _ in range(40):
        gradient = {"w": drift + (1e-5 * dice.standard_normal(20_000)).astype(np.float32)}
        made = select_visible(weights, gradient, owed)
        owed = made.residual
        total += gradient["w"]
        arrived += made.sent["w"]
        weights = {"w": weights["w"] - made.sent["w"]}
        shares.append(made.share)
    assert max(shares) < 0.2
    assert np.abs(total - arrived - owed["w"]).max() <= 40 * EPSILON * float(np.abs(total).max() * 4)  # type: ignore[index]
    gap = np.abs(arrived - total)
    assert (gap <= np.abs(weights["w"]) * 2.0**-7 + 1e-6).all(), "what is owed stays below one bfloat16"


def test_readers_take_exactly_what_the_site_counts_as_sent() -> None:
    weights = weights_of(2)["w"]
    gradient = weights_of(3)["w"] * np.float32(1e-3)
    made = select_visible({"w": weights}, {"w": gradient})
    code = encode_sparse(weights, made.after["w"])
    assert decode_sparse(memoryview(code), weights).tobytes() == made.sent["w"].tobytes()
    assert len(code) < made.share * weights.size * 5, "a gap and a short step for each"


def test_overflow_is_refused() -> None:
    huge = np.full(3, 3e38, np.float32)
    with pytest.raises(MalformedContribution, match="infinity"):
        select_visible({"w": huge}, {"w": -huge})
