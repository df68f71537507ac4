"""Guards: what stops a run before a step is published, and what must not."""

import math
from dataclasses import asdict
from typing import Any

import pytest

from trainer.config import GuardConfig
from trainer.exits import UnstableError
from trainer.making import check_step
from trainer.step_metrics import StepMetrics

GUARDS = GuardConfig(norm_factor=10, norm_window=6, entropy_share=0.1)


def step(number: int, **changes: Any) -> StepMetrics:
    """An ordinary step of the run, but for `changes`."""
    values: dict[str, Any] = dict.fromkeys(StepMetrics.__dataclass_fields__, 0)
    ordinary = {"step": number, "loss": 0.1, "entropy": 1.0, "grad_norm": 0.5, "groups_used": 4, "tokens": 100}
    return StepMetrics(**values | ordinary | changes)


def records(count: int, **changes: Any) -> list[dict[str, Any]]:
    return [asdict(step(number, **changes)) for number in range(1, count + 1)]


@pytest.mark.parametrize("name", ["loss", "entropy", "grad_norm"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_stops_the_first_step(name: str, value: float) -> None:
    what = name.replace("grad_norm", "gradient norm")
    with pytest.raises(UnstableError, match=f"step 1 has {what} {value}; it is not published, .* step 0 is kept"):
        check_step(GUARDS, step(1, **{name: value}), [])


def test_a_gradient_far_above_the_last_steps_stops_the_run() -> None:
    with pytest.raises(UnstableError, match=r"a gradient norm of 5\.1, 10 times that of earlier steps"):
        check_step(GUARDS, step(9, grad_norm=5.1), records(8))
    check_step(GUARDS, step(9, grad_norm=4.9), records(8))


def test_a_gradient_is_compared_with_the_window_alone_and_not_with_steps_without_signal() -> None:
    """Six steps of 0.5 after larger ones; steps whose every group was dropped have no gradient."""
    earlier = records(6, grad_norm=9.0) + records(6)
    earlier += records(3, grad_norm=0.0, groups_used=0, tokens=0, entropy=0.0)
    with pytest.raises(UnstableError, match="10 times"):
        check_step(GUARDS, step(16, grad_norm=5.1), earlier)
    check_step(GUARDS, step(16, grad_norm=4.9), earlier)


def test_an_entropy_that_is_suddenly_gone_stops_the_run_and_one_that_falls_does_not() -> None:
    with pytest.raises(UnstableError, match=r"an entropy of 0.09, after 1 in the steps before"):
        check_step(GUARDS, step(9, entropy=0.09), records(8))
    falling = [asdict(step(number, entropy=0.8**number)) for number in range(40)]
    for number in range(1, 40):
        check_step(GUARDS, step(number + 1, entropy=0.8**number), falling[:number])


def test_an_entropy_below_the_floor_stops_the_run_however_it_got_there() -> None:
    floor = GUARDS.model_copy(update={"entropy_floor": 0.05})
    with pytest.raises(UnstableError, match=r"an entropy of 0\.04, below `guards.entropy_floor`"):
        check_step(floor, step(2, entropy=0.04), records(1, entropy=0.06))


def test_the_first_steps_have_nothing_to_be_compared_with() -> None:
    for count in range(5):
        check_step(GUARDS, step(count + 1, grad_norm=500.0, entropy=0.001), records(count))


def test_a_step_without_signal_is_never_unstable() -> None:
    check_step(GUARDS, step(9, groups_used=0, tokens=0, entropy=0.0, grad_norm=0.0), records(8))


def test_what_to_do_is_said() -> None:
    with pytest.raises(UnstableError) as caught:
        check_step(GUARDS, step(3, loss=math.nan), [])
    assert caught.value.hint.startswith("look at the rollouts of its files, then name bad ones in `exclude`")
