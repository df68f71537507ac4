"""Curricula: which difficulty a problem has, what the mask holds, and that work skips masked problems alone."""

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pydantic import ValidationError

from protocol.config import Curriculum, EnvironmentConfig, PoolConfig, ProblemFilter, drawn
from protocol.curriculum import (
    MASK_FILE,
    MAX_LEFT_OUT,
    CurriculumMask,
    Difficulty,
    SolveRate,
    add_tries,
    build_mask,
    count_tries,
    mask_bytes,
    unmasked_seed,
)
from protocol.encoding import tagged_hash, words
from protocol.errors import IntegrityError
from protocol.seeds import assignments
from storage.weights.delta import MappedFile, encode_file
from tests.protocol.works import work_of
from tests.validator.world import CONFIG

DATA_FILE = {"name": "genesys", "content": "0" * 64, "rows": 40}


@pytest.mark.parametrize(
    ("count", "solved", "found"),
    [
        (0, 0, Difficulty.FRESH),
        (7, 7, Difficulty.FRESH),
        (8, 0, Difficulty.HARD),
        (8, 1, Difficulty.FITTING),
        (8, 6, Difficulty.FITTING),
        (8, 7, Difficulty.EASY),
        (3000, 374, Difficulty.HARD),
        (3000, 375, Difficulty.FITTING),
        (3000, 2250, Difficulty.FITTING),
        (3000, 2251, Difficulty.EASY),
    ],
)
def test_thresholds_are_exact_and_belong_to_what_fits(count: int, solved: int, found: Difficulty) -> None:
    assert SolveRate(count, solved).difficulty(Curriculum(highest=750)) is found


def test_tries_are_added_in_any_order() -> None:
    tries = [{(place, number): SolveRate(4, number % 5)} for place in (0, 1) for number in range(50) for _ in "ab"]
    rates = add_tries(tries)
    Random(3).shuffle(tries)
    assert add_tries(tries) == rates
    assert rates[1, 7] == SolveRate(8, 4)
    assert len(rates) == 100


@pytest.mark.parametrize(
    ("environments", "more", "said"),
    [
        ([DATA_FILE | {"curriculum": {"lowest": 900}}], {}, "`lowest` is 900, above `highest`, 875"),
        ([DATA_FILE | {"curriculum": {"lowest": 0, "highest": 1000}}], {}, "leave `curriculum` out"),
        ([DATA_FILE | {"curriculum": {"lowest": 0.25}}], {}, "valid integer"),
        ([DATA_FILE | {"curriculum": {"easy": 3}}], {}, "Extra inputs are not permitted"),
        ([DATA_FILE | {"curriculum": {"most": 1000}}], {}, "less than or equal to 900"),
        ([DATA_FILE | {"curriculum": {"window": 0}}], {}, "greater than or equal to 1"),
        ([DATA_FILE | {"curriculum": {"solved": float("nan")}}], {}, "finite number"),
        ([{"name": "reasoning_gym/chain_sum", "curriculum": {}}], {}, "name a data file's `rows`, or `problems`"),
        ([DATA_FILE | {"curriculum": {}}], {"data": {"rollouts": 5}}, "a data pool draws from all problems"),
        ([DATA_FILE | {"curriculum": {}}, {"name": "lookup", "weight": 64}], {}, "`weight` is 1 of 65"),
        (
            [DATA_FILE | {"curriculum": {}, "rows": 1 << 22}, DATA_FILE | {"curriculum": {}, "label": "b"}],
            {},
            "4194344 problems; 4194304 fit",
        ),
        (
            [DATA_FILE],
            {"evaluation": {"sets": [{"name": "e", "environment": DATA_FILE | {"curriculum": {}}}]}},
            "leave its `curriculum` out",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(environments: list[dict[str, Any]], more: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        PoolConfig.model_validate({"name": "p", "model": {"source": "m"}, "environments": environments, **more})


LEARN = Curriculum(tries=4, lowest=250, highest=750)
FILE = EnvironmentConfig(name="genesys", content="0" * 64, rows=44, held_out=4, curriculum=LEARN)
SUMS = EnvironmentConfig(name="reasoning_gym/chain_sum")
FILTERED = SUMS.model_copy(update={"label": "kept", "problems": ProblemFilter.of(9, (1, 4, 8)), "curriculum": LEARN})
POOL = PoolConfig(name="p", model=CONFIG.model, environments=(FILE, SUMS, FILTERED))
RATES = {0: {number: SolveRate(4, number // 10 * 2) for number in range(30)}, 2: {4: SolveRate(4, 4)}}
"""Rows 0 to 9 are hard, 10 to 19 fit, 20 to 29 are easy, the rest fresh; candidate 4 is easy."""
TABLE = build_mask(POOL, 5, RATES)


def seeds(count: int) -> list[int]:
    return [words(tagged_hash("test", number), 1)[0] for number in range(count)]


def test_hard_and_easy_problems_rest_and_nothing_else_does() -> None:
    assert [number for number in range(40) if TABLE.masks(0, number)] == [*range(10), *range(20, 30)]
    assert (TABLE.count(0, Difficulty.HARD), TABLE.count(0, Difficulty.EASY)) == (10, 10)
    assert [number for number in range(9) if TABLE.masks(2, number)] == [4]
    assert not TABLE.masks(1, 77)


def test_work_passes_by_what_rests_and_draws_the_others_alike() -> None:
    found: Counter[tuple[int, int]] = Counter()
    for first in seeds(20_000):
        made = unmasked_seed(POOL, first, TABLE)
        place, own = drawn(POOL.environments, first).environment, drawn(POOL.environments, made)
        assert place == own.environment, "every environment keeps its share"
        number = POOL.environments[place].number(made)
        assert not TABLE.masks(place, number)
        if not TABLE.masks(place, POOL.environments[place].number(first)):
            assert made == first, "only a draw that rests is made anew"
        found[place, number] += place != 1
    kinds = Counter(place for place, _ in found)
    assert (kinds[0], kinds[2]) == (20, 2)
    for place, share in ((0, 20), (2, 2)):
        counts = [count for (one, _), count in found.items() if one == place]
        assert min(counts) > 0.75 * sum(counts) / share
        assert max(counts) < 1.25 * sum(counts) / share


def test_assignments_use_the_table_of_the_step_and_refuse_to_do_without() -> None:
    work = work_of(4)
    empty = build_mask(POOL, 5, {0: {}, 2: {}})
    plain = POOL.without_curricula
    assert assignments(work, POOL, empty) == assignments(work, plain)
    assert assignments(work, POOL, TABLE) != assignments(work, plain)
    one_row = POOL.model_copy(update={"environments": (FILE.model_copy(update={"rows": 1, "held_out": 0}),)})
    assert unmasked_seed(one_row, 12345, CurriculumMask({0: b"\x01"})) == 12345, (
        "with everything at rest the draw stands"
    )
    with pytest.raises(IntegrityError, match="there is none"):
        assignments(work, POOL)


def test_at_most_the_configured_share_rests_and_by_lot() -> None:
    some = FILE.model_copy(update={"curriculum": LEARN.model_copy(update={"most": 300})})
    pool = POOL.model_copy(update={"environments": (some, SUMS, FILTERED)})
    tables = [build_mask(pool, step, RATES) for step in range(20)]
    sets = [{number for number in range(40) if table.masks(0, number)} for table in tables]
    assert all(len(one) == 12 for one in sets)
    assert set().union(*sets) == {*range(10), *range(20, 30)}
    assert build_mask(pool, 3, {place: dict(reversed(rates.items())) for place, rates in RATES.items()}) == tables[3]


def test_a_table_survives_being_stored(tmp_path: Path) -> None:
    table = build_mask(POOL, 5, RATES, left_out=(7, 3))
    (tmp_path / MASK_FILE).write_bytes(table.encoded(POOL))
    assert CurriculumMask.load(POOL, tmp_path) == replace(table, left_out=(3, 7))
    assert CurriculumMask.load(POOL.without_curricula, tmp_path) is None


def test_with_too_many_files_left_out_nothing_rests() -> None:
    table = build_mask(POOL, 5, RATES, left_out=range(100, 100 + MAX_LEFT_OUT + 5))
    assert table.left_out == tuple(range(100, 100 + MAX_LEFT_OUT))
    assert not any(table.masks(0, number) for number in range(40))
    assert CurriculumMask.decoded(POOL, table.encoded(POOL)) == table


def test_hostile_tables_are_refused_and_never_half_read(tmp_path: Path) -> None:
    good = build_mask(POOL, 5, RATES, left_out=(3, 7)).encoded(POOL)
    with pytest.raises(IntegrityError, match=f"has no {MASK_FILE}"):
        CurriculumMask.load(POOL, tmp_path)
    falling = replace(CurriculumMask.decoded(POOL, good), left_out=(7, 3)).encoded(POOL)
    twice = replace(CurriculumMask.decoded(POOL, good), left_out=(3, 3)).encoded(POOL)
    for bad in (b"", good[:-1], good + b"\0", bytes(len(good)), good[:-1] + b"\x03", falling, twice):
        (tmp_path / MASK_FILE).write_bytes(bad)
        with pytest.raises(IntegrityError, match=r"curriculum mask"):
            CurriculumMask.load(POOL, tmp_path)
    rng = Random(1)
    for _ in range(300):
        at, value = rng.randrange(len(good)), rng.randrange(256)
        bent = good[:at] + bytes([value]) + good[at + 1 :]
        with suppress(IntegrityError):
            assert CurriculumMask.decoded(POOL, bent).encoded(POOL) == bent, "one table, one file"
    (tmp_path / MASK_FILE).unlink()
    (tmp_path / "other").write_bytes(good)
    (tmp_path / MASK_FILE).symlink_to(tmp_path / "other")
    with pytest.raises(IntegrityError):
        CurriculumMask.load(POOL, tmp_path)


def test_a_table_always_has_a_delta_shorter_than_itself(tmp_path: Path) -> None:
    """Otherwise a step would lose its deltas, for they lead to all files that differ or to none."""
    full = {0: {number: SolveRate(9, 9 * (number % 2)) for number in range(40)}, 2: {1: SolveRate(9, 0)}}
    old, new = tmp_path / "old", tmp_path / "new"
    nothing: dict[int, dict[int, SolveRate]] = {0: {}, 2: {}}
    for rates in (RATES, full, nothing):
        for left_out in ((), range(64)):
            old.write_bytes(build_mask(POOL, 5, RATES, left_out=(1,)).encoded(POOL))
            new.write_bytes(build_mask(POOL, 6, rates, left_out).encoded(POOL))
            delta = encode_file(MappedFile(old), MappedFile(new))
            assert delta is not None
            assert len(delta) < mask_bytes(POOL) / 4


def test_a_file_is_tallied_by_problem() -> None:
    row = next(seed for seed in seeds(100) if drawn(POOL.environments, seed).environment == 0)
    other = next(seed for seed in seeds(100) if drawn(POOL.environments, seed).environment == 1)
    found = count_tries(POOL, [(row, 1.0), (row, 0.5), (row, float("nan")), (other, 1.0)])
    assert found == {(0, row % 40): SolveRate(3, 1), (1, other): SolveRate(1, 1)}
    half = FILE.model_copy(update={"curriculum": LEARN.model_copy(update={"solved": 0.5})})
    lenient = POOL.model_copy(update={"environments": (half, SUMS, FILTERED)})
    assert count_tries(lenient, [(row, 1.0), (row, 0.5)]) == {(0, row % 40): SolveRate(2, 2)}
