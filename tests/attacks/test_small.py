"""Cheats that are too small for one file of a bf16 pool are there: in float32 one file shows each of them."""

import pytest

from attacks.base import Cheat
from attacks.small import SMALL_ATTACKS
from engines.hf import TransformersEngine
from protocol.verdict import Code
from tests.validator import tiny

STRENGTHS = {
    "layer-int8": 0.0,
    "kv-int8": 0.0,
    "stale-prefill": 0.0,
    "top-p": 0.5,
    "temperature-proven": 0.5,
    "greedy-rows": 0.5,
}


def cheat(name: str, strength: float) -> Cheat:
    made = SMALL_ATTACKS[name].build(tiny.CONFIG, TransformersEngine(max_batch=8), strength)
    if name == "stale-prefill":
        made.load(tiny.model_folder(seed=1))
    made.load(tiny.model_folder())
    assert isinstance(made, Cheat)
    return made


def test_every_small_attack_is_tried() -> None:
    assert set(STRENGTHS) == set(SMALL_ATTACKS)


@pytest.mark.parametrize("name", sorted(STRENGTHS))
def test_one_file_in_float32_shows_it(name: str) -> None:
    made = cheat(name, STRENGTHS[name]).make(tiny.work_of(2))
    assert tiny.verdict_on(made, tiny.work_of(2)).code.is_reject


@pytest.mark.parametrize(("name", "strength"), [("top-p", 1.0), ("stale-prefill", 0.0)])
def test_without_its_change_the_work_is_honest(name: str, strength: float) -> None:
    """All of the probability; and a first step, before which there was none."""
    made = SMALL_ATTACKS[name].build(tiny.CONFIG, TransformersEngine(max_batch=8), strength)
    made.load(tiny.model_folder())
    assert tiny.verdict_on(made.make(tiny.work_of(3)), tiny.work_of(3)).code is Code.ACCEPT
