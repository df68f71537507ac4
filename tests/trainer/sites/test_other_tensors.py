"""A contribution of other tensors than the model's ends in the error that callers expect, before anything is summed."""

from typing import Any

import numpy as np
import pytest

from protocol.sites.config import SitesConfig
from protocol.sites.layout import F32
from protocol.sites.outer import OuterState, OuterStepError
from trainer.sites.replica import OuterStep, follow, settle

STATE = OuterState.start({"a": np.ones((6, 4), np.float32), "b": np.ones(7, np.float32)})
CONFIG = SitesConfig(shards=3)


def tensors(seed: int) -> dict[str, F32]:
    dice = np.random.default_rng(seed)
    return {name: (1 + 0.1 * dice.standard_normal(one.shape)).astype(np.float32) for name, one in STATE.weights.items()}


HONEST = {f"0x{number:040x}": tensors(number) for number in range(1, 5)}


@pytest.mark.parametrize(
    "changed",
    [
        {"b": None},
        {"a": np.ones((5, 4), np.float32)},
        {"a": np.ones((4, 6), np.float32)},
        {"b": np.ones(7, np.float64)},
        {"c": np.ones(1, np.float32)},
    ],
)
def test_other_tensors_make_no_step(changed: dict[str, Any]) -> None:
    hostile = {name: one for name, one in {**tensors(9), **changed}.items() if one is not None}
    given = {**HONEST, "0x" + "f" * 40: hostile}
    made = settle(STATE, HONEST, CONFIG)
    assert made is not None
    with pytest.raises(OuterStepError, match=r"0xffff.*other tensors"):
        settle(STATE, given, CONFIG)
    with pytest.raises(OuterStepError, match=r"0xffff.*other tensors"):
        follow(STATE, OuterStep(0, STATE.digest, given, made.digest), CONFIG)
