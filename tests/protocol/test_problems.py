"""Filtered problems: everybody draws the same ones, an owner can leave out but not put in, one way to write it."""

import base64
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from protocol.config import PoolConfig
from protocol.environments import Drawn, drawn
from protocol.identity import PoolId, WorkId
from protocol.problems import MAX_CANDIDATES, ProblemFilter, candidate_seed, kept_candidate
from protocol.seeds import Assignment, Work, assignments
from tests.validator.world import CONFIG


def filtered(candidates: int, kept: tuple[int, ...]) -> PoolConfig:
    problems = ProblemFilter.of(candidates, kept)
    environment = CONFIG.environments[0].model_copy(update={"problems": problems})
    return CONFIG.model_copy(update={"environments": (environment,)})


def found(config: PoolConfig, slot: Assignment) -> int:
    return drawn(config.environments, slot.problem_seed).seed


@given(st.data())
def test_a_filter_keeps_exactly_what_it_was_made_of(data: st.DataObject) -> None:
    candidates = data.draw(st.integers(1, 300))
    kept = tuple(sorted(data.draw(st.sets(st.integers(0, candidates - 1), min_size=1))))
    made = ProblemFilter.of(candidates, kept)
    assert made.places == kept
    assert ProblemFilter.model_validate_json(made.model_dump_json()) == made
    assert {kept_candidate(made, draw) for draw in range(len(kept))} == set(kept)


def test_without_a_filter_a_draw_is_its_own_problem() -> None:
    assert drawn(CONFIG.environments, 12345) == Drawn(0, 12345)


def test_work_is_drawn_from_the_kept_candidates_only() -> None:
    config = filtered(100, (3, 14, 15, 92))
    wanted, drawn = {candidate_seed(place) for place in (3, 14, 15, 92)}, set()
    for counter in range(60):
        work = Work(WorkId(PoolId(1, "0x" + "22" * 20, 1), "0x" + "11" * 20, 3, counter), bytes(32), bytes(32))
        drawn |= {found(config, slot) for slot in assignments(work, config)}
    assert drawn == wanted


def test_candidates_are_public_hashes_nobody_chose() -> None:
    assert (candidate_seed(0), candidate_seed(1)) == (7441295573411180751, 17317095134060186468)
    assert len({candidate_seed(number) for number in range(1000)}) == 1000


def test_the_filter_is_part_of_what_a_pool_promises() -> None:
    assert filtered(100, (3,)).digest != filtered(100, (4,)).digest != CONFIG.digest
    assert PoolConfig.parse(filtered(100, (3,)).canonical(), "here") == filtered(100, (3,))


def encoded(*values: int) -> str:
    return base64.b64encode(bytes(values)).decode()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"candidates": 8, "kept": encoded(0)}, "no candidate is kept"),
        ({"candidates": 9, "kept": encoded(1)}, "holds 1 bytes, 9 candidates take 2"),
        ({"candidates": 4, "kept": encoded(0x8F)}, "is not the base64 of 4 bits"),
        ({"candidates": 8, "kept": "gB=="}, "is not the base64 of 8 bits"),
        ({"candidates": 8, "kept": "%%%%"}, "is not base64"),
        ({"candidates": 8, "kept": "ä"}, "is not base64"),
        ({"candidates": 0, "kept": ""}, "greater than or equal to 1"),
        ({"candidates": 8, "kept": encoded(1), "lowest": 0.9, "highest": 0.5}, "above `highest`"),
    ],
)
def test_a_filter_has_one_way_to_be_written(fields: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        ProblemFilter.model_validate(fields)


def test_a_strangers_largest_filter_takes_little_memory() -> None:
    """Validators keep those of several pools."""
    kept = base64.b64encode(b"\xff" * (MAX_CANDIDATES // 8)).decode()
    tracemalloc.start()
    try:
        ProblemFilter(candidates=MAX_CANDIDATES, kept=kept)
        assert tracemalloc.get_traced_memory()[0] < 32 << 20
    finally:
        tracemalloc.stop()
