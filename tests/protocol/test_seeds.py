"""Thinking budgets: a node's class is fixed by its address, and every role derives the same targets from it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from protocol.config import WorkConfig
from protocol.seeds import all_targets, assignments, length_tier, targets_of
from tests.protocol.works import POOLS, work_of
from tests.validator.world import CONFIG

CLASSES = ((8, 12), (16, 20), (28, 36))
BUDGETS = CONFIG.model_copy(update={"work": CONFIG.work.model_copy(update={"targets": (), "length_tiers": CLASSES})})


@given(st.integers(0, (1 << 160) - 1), st.integers(1, 16))
def test_every_address_is_of_one_class_and_stronger_ones_lie_higher(number: int, classes: int) -> None:
    mine = length_tier(f"0x{number:040x}", classes)
    assert 0 <= mine < classes
    assert (mine << 160) <= number * classes < (mine + 1) << 160


def test_the_strongest_of_four_is_the_strongest_of_two() -> None:
    address = "0xC" + "0" * 39
    assert [length_tier(address, classes) for classes in (1, 2, 3, 4)] == [0, 1, 2, 3]


@pytest.mark.parametrize("digit", range(16))
def test_a_node_draws_from_its_own_class_only(digit: int) -> None:
    node = f"0x{digit:x}" + "5" * 39
    drawn = {slot.target_length for counter in range(40) for slot in assignments(work_of(counter, node), BUDGETS)}
    assert drawn == set(CLASSES[length_tier(node, 3)]) == set(targets_of(BUDGETS.work, node))


def test_every_target_of_a_pool_is_known_and_one_class_is_as_none() -> None:
    one = CONFIG.model_copy(update={"work": replace_work(targets=(), length_tiers=(CONFIG.work.targets,))})
    assert assignments(work_of(0, POOLS), one) == assignments(work_of(0, POOLS), CONFIG)
    assert all_targets(BUDGETS.work) == (8, 12, 16, 20, 28, 36)
    assert all_targets(CONFIG.work) == (16, 24)
    assert all_targets(WorkConfig()) == ()


def replace_work(**changes: object) -> WorkConfig:
    return CONFIG.work.model_copy(update=changes)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"targets": (8,), "length_tiers": ((8,),)}, "exclude one another"),
        ({"length_tiers": ((20,), (8,))}, "from the weakest nodes"),
        ({"length_tiers": ((8,), (65,))}, "a target of 65 tokens, but `max_new_tokens` is 64"),
        ({"targets": (100,)}, "a target of 100 tokens"),
        ({"length_tiers": ((),)}, "at least 1 item"),
        ({"targets": (0,)}, "greater than 0"),
    ],
)
def test_budgets_that_cannot_be_are_refused(fields: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        WorkConfig.model_validate({"max_new_tokens": 64, **fields})


def test_another_address_is_another_node_with_other_work() -> None:
    weak, strong = work_of(0, "0x1" + "1" * 39), work_of(0, "0xf" + "1" * 39)
    assert weak.seed != replace(weak, id=replace(weak.id, node=strong.id.node)).seed
