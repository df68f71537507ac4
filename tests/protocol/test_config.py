"""The pool's document: what it may say, and which environment and problem a seed stands for."""

import base64
import json
import tracemalloc
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from protocol.config import (
    MAX_CANDIDATES,
    DppoConfig,
    Drawn,
    EnvironmentConfig,
    GspoConfig,
    PoolConfig,
    ProblemFilter,
    candidate_seed,
    chosen_environment,
    drawn,
)
from protocol.encoding import tagged_hash
from protocol.errors import ConfigError
from protocol.seeds import assignments
from tests.protocol.works import work_of
from tests.validator.world import CONFIG

POOL: dict[str, Any] = {"name": "p", "model": {"source": "m"}, "environments": [{"name": "reasoning_gym/chain_sum"}]}


def document(train: dict[str, Any], work: dict[str, Any] | None = None) -> PoolConfig:
    return PoolConfig.parse(json.dumps({**POOL, "train": train, "work": work or {}}).encode(), "pool.json")


def algorithm(**fields: Any) -> dict[str, Any]:
    return {"algorithm": fields}


@pytest.mark.parametrize(
    ("train", "said"),
    [
        (algorithm(loss={"name": "ppo"}), "`train.algorithm.loss`: Input tag 'ppo' found using 'name' does not match"),
        (algorithm(loss={"name": "gspo", "delta": 4}), "`train.algorithm.loss.gspo.delta`: Extra inputs"),
        (algorithm(advantage="gae"), "`train.algorithm.advantage`: Input should be 'mean', 'normalised'"),
        (algorithm(normaliser="none"), "`train.algorithm.normaliser`"),
        (algorithm(loss={"name": "grpo", "delta": 1.1}), "delta must exceed 1 + epsilon_high"),
        (algorithm(loss={"name": "gspo"}), 'loss gspo has one term per sequence; it needs normaliser "sequences"'),
        (algorithm(loss={"name": "dppo"}, importance_cap=0), "loss dppo compares with the sampling policy"),
        (algorithm(importance_cap=0.5), "importance_cap below 1 would shrink fresh rollouts too"),
        (algorithm(normaliser="constant"), 'normaliser "constant" and constant_length (tokens) go together'),
        (algorithm(kl={"teacher": "t"}), "kl.teacher teaches nothing without a kl.coefficient"),
        (algorithm(constant_length=9), 'normaliser "constant" and constant_length (tokens) go together'),
        ({"minibatches": 513}, "train.minibatches exceeds the rollouts of a step"),
        ({"optimizer": {"method": {"name": "sgd"}}}, "`train.optimizer.method`: Input tag 'sgd'"),
        ({"learning_rate": 1e-3}, "`train.learning_rate`: Extra inputs are not permitted"),
    ],
)
def test_a_senseless_recipe_is_refused_in_one_line(train: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        document(train)
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_what_work_and_training_promise_one_another_is_checked() -> None:
    with pytest.raises(ConfigError, match="an advantage compares a problem's samples"):
        document({}, {"samples_per_problem": 1})
    with pytest.raises(ConfigError, match="length_alpha makes rewards negative"):
        document(algorithm(advantage="maxrl"), {"length_alpha": 0.001})
    with pytest.raises(ConfigError, match=r"advantage none, and no kl\.teacher"):
        document(algorithm(advantage="none"))
    taught = algorithm(advantage="none", kl={"coefficient": 1.0, "teacher": "t"})
    assert document(taught, {"samples_per_problem": 1}).train.algorithm.kl.teacher == "t"


def test_a_loss_is_chosen_by_name_and_survives_the_canonical_document() -> None:
    chosen = document(algorithm(loss={"name": "gspo"}, normaliser="sequences"))
    assert chosen.train.algorithm.loss == GspoConfig()
    again = PoolConfig.parse(chosen.canonical(), "it")
    assert (again, again.digest) == (chosen, chosen.digest)
    assert document(algorithm(loss={"name": "dppo", "mask_low": 0.1})).train.algorithm.loss == DppoConfig(mask_low=0.1)
    one_sided = document(algorithm(loss={"name": "grpo", "delta": None}))
    assert PoolConfig.parse(one_sided.canonical(), "it") == one_sided


SUMS = EnvironmentConfig(name="reasoning_gym/chain_sum", weight=3)
WORDS = EnvironmentConfig(name="reasoning_gym/letter_counting", weight=1, targets=(), length_alpha=0.0)
ROWS = EnvironmentConfig(name="genesys", weight=4, rows=10, held_out=3)
SEEDS = st.integers(0, 2**64 - 1)


def reference(weights: list[int], seed: int) -> int:
    """The same choice by fractions of the hash's range of remainders."""
    share = Fraction(int.from_bytes(tagged_hash("muster/environment/1", seed)[:8], "big") % sum(weights), sum(weights))
    place, reached = 0, Fraction(weights[0], sum(weights))
    while share >= reached:
        place += 1
        reached += Fraction(weights[place], sum(weights))
    return place


@given(st.lists(st.integers(1, 1 << 16), min_size=2, max_size=64), SEEDS)
def test_the_choice_is_that_of_exact_fractions(weights: list[int], seed: int) -> None:
    assert chosen_environment(weights, seed) == reference(weights, seed)


@given(SEEDS)
def test_one_environment_takes_every_seed_as_it_is(seed: int) -> None:
    assert drawn((SUMS,), seed) == Drawn(0, seed)


def test_rows_for_work_and_for_evaluation_are_apart() -> None:
    work = {drawn((ROWS,), seed).seed for seed in range(1000)}
    assert (work, {drawn((ROWS,), seed, held_out=True).seed for seed in range(1000)}) == (set(range(7)), {7, 8, 9})


def test_a_filter_keeps_rows_of_a_file_and_hashes_of_a_generator_in_all_work() -> None:
    kept = ProblemFilter.of(7, (2, 5))
    filtered = ROWS.model_copy(update={"problems": kept})
    assert {drawn((filtered,), seed).seed for seed in range(100)} == {2, 5}
    generator = SUMS.model_copy(update={"problems": kept})
    config = CONFIG.model_copy(update={"environments": (generator,)})
    slots = [slot for counter in range(20) for slot in assignments(work_of(counter), config)]
    found = {drawn(config.environments, slot.problem_seed).seed for slot in slots}
    assert found == {candidate_seed(2), candidate_seed(5)}
    assert drawn((generator,), 77, held_out=True) == Drawn(0, 77)
    assert PoolConfig.parse(config.canonical(), "here") == config


def test_work_takes_the_targets_of_the_environment_its_problem_is_of() -> None:
    config = CONFIG.model_copy(update={"environments": (SUMS, WORDS)})
    targets: dict[int, set[int]] = {0: set(), 1: set()}
    for counter in range(40):
        for slot in assignments(work_of(counter), config):
            targets[drawn(config.environments, slot.problem_seed).environment].add(slot.target_length)
    assert targets == {0: {16, 24}, 1: {0}}


@pytest.mark.parametrize(
    ("environments", "said"),
    [
        ([], "at least 1 item"),
        ([{"name": "a"}, {"name": "a"}], "two environments have one name"),
        ([{"name": "a", "weight": 0}], "greater than or equal to 1"),
        ([{"name": "a", "weight": 2.5}], "valid integer"),
        ([{"name": "a", "rows": 5, "held_out": 5}], "nothing is left to work on"),
        ([{"name": "a", "held_out": 5}], "nothing is left to work on"),
        ([{"name": "a", "targets": [65]}], "beyond work.max_new_tokens"),
        ([{"name": "a", "advantage": "maxrl", "length_alpha": 0.1}], "makes rewards negative"),
        ([{"name": "a", "content": "ab"}], "match pattern"),
        ([{"name": "a\n"}], "match pattern"),
        (
            [{"name": "a", "rows": 9, "held_out": 2, "problems": {"candidates": 8, "kept": "gA=="}}],
            "`problems.candidates` are 8, of 7 rows",
        ),
    ],
)
def test_contradictions_are_refused(environments: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        PoolConfig.model_validate({"name": "p", "model": {"source": "m"}, "environments": environments})


def test_labels_tell_two_environments_of_one_name_apart() -> None:
    both = (SUMS, SUMS.model_copy(update={"label": "long-sums"}))
    config = PoolConfig(name="p", model=CONFIG.model, environments=both)
    assert config.environment_names == "reasoning_gym/chain_sum, long-sums"


@given(st.data())
def test_a_filter_keeps_exactly_what_it_was_made_of(data: st.DataObject) -> None:
    candidates = data.draw(st.integers(1, 300))
    kept = tuple(sorted(data.draw(st.sets(st.integers(0, candidates - 1), min_size=1))))
    made = ProblemFilter.of(candidates, kept)
    assert made.kept_candidates == kept
    assert ProblemFilter.model_validate_json(made.model_dump_json()) == made
    filtered = SUMS.model_copy(update={"problems": made})
    assert {filtered.number(draw) for draw in range(len(kept))} == set(kept)


def test_candidates_are_public_hashes_nobody_chose() -> None:
    assert (candidate_seed(0), candidate_seed(1)) == (7441295573411180751, 17317095134060186468)
    assert len({candidate_seed(number) for number in range(1000)}) == 1000


def encoded(*values: int) -> str:
    return base64.b64encode(bytes(values)).decode()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"candidates": 8, "kept": encoded(0)}, "no candidate is kept"),
        ({"candidates": 9, "kept": encoded(1)}, "is not the base64 of 9 bits"),
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
