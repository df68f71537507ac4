"""A pool that cannot work is refused before its owner's money moves."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chain.indexer.records import Terms
from chain.suite import Suite
from cli.pool.config import (
    contradictions,
    costs,
    costs_text,
    judging,
    load_terms,
    missing_model,
    warnings,
    world_problems,
)
from localnet.plan import BUDGET, pool_config, pool_terms
from protocol.config import (
    BF16_CHECKS,
    ChecksConfig,
    Curriculum,
    DataConfig,
    EnvironmentConfig,
    PoolConfig,
    ProblemFilter,
    WorkConfig,
)
from protocol.encoding import TOKEN
from protocol.evidence.null_model import EvidenceConfig
from tests.cli import pool_files
from tests.cli.muster import Key, Muster
from tests.cli.pool_files import StubService, create_pool, write_pool_files

CONFIG = pool_config(7, 30)
TERMS = pool_terms(CONFIG)
PAID = replace(TERMS, fee=TOKEN)


@pytest.mark.parametrize(
    ("terms", "budget", "words"),
    [
        ({"minStake": TOKEN, "leverage": 0}, BUDGET, "the least stake allows 0 output tokens in flight"),
        ({"maxLag": 3}, BUDGET, "training uses files 4 steps old, `max_lag` takes 3"),
        ({}, TOKEN // 2, "the budget is 0.5 tokens, one full file costs 0.8492"),
    ],
)
def test_each_contradiction_is_named_with_both_figures(terms: dict[str, Any], budget: int, words: str) -> None:
    found = contradictions(CONFIG, replace(TERMS, **terms), budget)
    assert [one for one in found if words in one.what and one.hint]


def test_a_bfloat16_pool_is_not_made_with_the_thresholds_of_another_model() -> None:
    """Rounding differs from model to model, and a refused file is slashed."""
    model = CONFIG.model.model_copy(update={"dtype": "bfloat16"})
    for checks, refused in (
        (BF16_CHECKS, True),
        (ChecksConfig(sampling_gap_reject=2), True),
        (ChecksConfig(audit_rate=TERMS.auditRate), False),
    ):
        config = CONFIG.model_copy(update={"model": model, "checks": checks})
        found = [str(one) for one in contradictions(config, TERMS, BUDGET)]
        assert any("muster pool calibrate" in one for one in found) == refused
    assert not any("calibrate" in str(one) for one in contradictions(CONFIG, TERMS, BUDGET)), "float32 is exact enough"


def test_thresholds_hold_at_the_audit_rate_that_they_were_measured_at() -> None:
    for measured, audited, refused in ((65536, 4096, True), (4096, 65536, True), (4096, 4096, False)):
        config = CONFIG.model_copy(update={"checks": ChecksConfig(audit_rate=measured)})
        found = [str(one) for one in contradictions(config, replace(TERMS, auditRate=audited), BUDGET)]
        assert any(f"--audit-rate {audited} --apply" in line for line in found) == refused


def test_files_larger_than_contracts_buckets_or_scorers_take_are_named() -> None:
    def named(**changes: int) -> list[str]:
        config = CONFIG.model_copy(update={"work": CONFIG.work.model_copy(update=changes)})
        return [str(one) for one in contradictions(config, replace(TERMS, maxUnits=1), 10**12 * BUDGET)]

    huge = named(problems_per_file=4096, samples_per_problem=16, max_new_tokens=65536)
    assert "a file can have 4294967296 output tokens" in "".join(huge)
    assert "answers can have 65537 tokens" in "".join(named(max_new_tokens=65537))
    assert "bytes, a bucket takes 5368709120" in "".join(named(problems_per_file=4096, max_new_tokens=65536))
    assert not any("answers can" in line or "bytes" in line for line in named(max_new_tokens=32768))


def shaped(layers: int, width: int, heads: int, kv_heads: int, hidden: int) -> dict[str, Any]:
    """A config.json as Qwen2.5 and Qwen3 have it."""
    return {
        "num_hidden_layers": layers, "hidden_size": width, "num_attention_heads": heads, "intermediate_size": hidden,
        "num_key_value_heads": kv_heads, "head_dim": width // heads, "vocab_size": 151936,
        "max_position_embeddings": 40960,
    }  # fmt: skip


HALF, SEVEN, THIRTY_TWO = shaped(24, 896, 14, 2, 4864), shaped(28, 3584, 28, 4, 18944), shaped(64, 5120, 40, 8, 27648)


@pytest.mark.parametrize(
    ("model", "answer", "rows", "rate", "speed", "refused"),
    [
        (HALF, 512, 128, 65536, 0.0, ()),
        (HALF, 512, 128, 65536, 0.01, ("commit_window", "jury_commit_window")),
        (SEVEN, 8192, 128, 65536, 0.0, ()),
        (SEVEN, 8192, 128, 65536, 40.0, ("commit_window",)),
        (THIRTY_TWO, 32768, 128, 65536, 0.0, ("commit_window", "jury_commit_window")),
        (THIRTY_TWO, 32768, 128, 4096, 400.0, ()),
        (HALF, 32768, 128, 65536, 0.0, ()),
        (HALF, 32768, 128, 65536, 40.0, ("commit_window",)),
        (HALF, 32768, 128, 16384, 40.0, ()),
    ],
)
def test_a_pool_that_no_validator_of_the_stated_speed_can_judge_is_refused_by_name(
    model: dict[str, Any], answer: int, rows: int, rate: int, speed: float, refused: tuple[str, ...]
) -> None:
    work = WorkConfig(problems_per_file=rows // 8, samples_per_problem=8, max_new_tokens=answer)
    update = {"work": work, "model": CONFIG.model.model_copy(update={"dtype": "bfloat16"})}
    config = CONFIG.model_copy(update=update)
    terms = replace(load_terms(Path("base-sepolia"), bytes(32), work.units), auditRate=rate)
    line, problems = judging(config, terms, model, speed)
    assert "rows of a lane" in line
    assert [f"of `{name}`" in one.what for name, one in zip(refused, problems, strict=True)] == [True] * len(refused)
    for one in problems:  # what the hint says is enough
        name, least = one.hint.split("`")[1], int(one.hint.split(" to ")[1].split(",")[0])
        windows = {"commit_window": "commitWindow", "jury_commit_window": "juryCommitWindow"}
        eased = Terms.of(vars(terms) | {windows[name]: least})
        assert f"of `{name}`" not in "".join(two.what for two in judging(config, eased, model, speed)[1])
        if "audit_rate" in one.hint:
            eased = replace(terms, auditRate=int(one.hint.split("`audit_rate` to ")[1].split(",")[0]))
            assert f"of `{name}`" not in "".join(two.what for two in judging(config, eased, model, speed)[1])


def test_the_context_holds_prompt_and_answer_and_a_model_that_is_not_here_is_not_priced() -> None:
    long = CONFIG.model_copy(update={"work": WorkConfig(max_new_tokens=40960)})
    assert "40960 positions" in judging(long, TERMS, HALF)[1][0].what
    assert judging(CONFIG, TERMS, None) == ("not priced: the model's config.json is not on this machine", [])
    assert judging(CONFIG, TERMS, {}) == ("not priced: the model's config.json does not give its sizes", [])


SLOW = EnvironmentConfig(name="program", label="own", content="ab" * 32, params={"seconds": 0.25})


@pytest.mark.parametrize(
    ("windows", "words"),
    [
        ({}, "own: scoring a lane of 16 files may take 2304 calls of 0.25 s, 576 s of a core; of `commit_window` 12.5"),
        ({"commitWindow": 1151}, "of `commit_window` 575.5 s are for that"),
        ({"commitWindow": 1152}, "own: scoring a file before a jury may take 144 calls of 0.25 s, 36 s of a core"),
        ({"commitWindow": 1152, "juryCommitWindow": 72}, ""),
    ],
)
def test_programs_that_could_take_longer_than_their_judges_have_are_named(windows: dict[str, Any], words: str) -> None:
    config = CONFIG.model_copy(update={"environments": (*CONFIG.environments, SLOW)})
    found = [str(one) for one in contradictions(config, replace(TERMS, **windows), BUDGET)]
    assert [words in line for line in found] == [True] * bool(words)
    config = CONFIG.model_copy(update={"environments": (SLOW,)})
    (slow,) = contradictions(config, TERMS, BUDGET)
    assert slow.hint == "make files smaller, or raise `commit_window`", "no program could be quick enough"
    (slow,) = contradictions(config, replace(TERMS, commitWindow=60), BUDGET)
    assert slow.hint == "set `params.seconds` to 0.013 or less, make files smaller, or raise `commit_window`"


def learning(weight: int = 1, **changes: int) -> PoolConfig:
    """Two environments, of which one has 512 problems and a curriculum; four files of 128 rows for each step."""
    learn = Curriculum.model_validate({"tries": 8, "lowest": 125, "highest": 875, "window": 16, "most": 750} | changes)
    chosen = ProblemFilter.of(600, tuple(range(512)))
    one = EnvironmentConfig(name="reasoning_gym/chain_sum", weight=weight, problems=chosen, curriculum=learn)
    other = EnvironmentConfig(name="reasoning_gym/spell_backward")
    return CONFIG.model_copy(update={"environments": (one, other)})


def test_a_curriculum_by_which_nothing_would_rest_is_named() -> None:
    assert CONFIG.train.files_per_step * CONFIG.work.rows * 16 / 2 / 512 == 8, "half of the problems are of the other"
    assert contradictions(learning(tries=32), TERMS, BUDGET) == []
    assert contradictions(learning(3, tries=48), TERMS, BUDGET) == []
    (found,) = contradictions(learning(tries=33), TERMS, BUDGET)
    assert found.what == (
        "environment reasoning_gym/chain_sum: a problem is tried about 8 times in 16 policy steps, but its curriculum "
        "masks after 33 tries"
    )
    assert found.hint == "raise `curriculum.window`, lower `tries`, or leave `curriculum` out"


def test_a_pool_without_evidence_is_warned_of() -> None:
    changes = {"evidence": EvidenceConfig(engines=("a",)), "scoring_versions": {"numpy": "1"}}
    assert warnings(CONFIG.model_copy(update=changes), PAID) == []
    unnamed, none = warnings(CONFIG, PAID)
    assert "names no `scoring_versions`" in unnamed.what
    assert none.what.startswith("the pool's configuration has no `evidence`, so cheats too small")


def test_a_fee_that_does_not_pay_for_a_check_is_warned_of() -> None:
    """At base-sepolia's terms a file of 128 rows of 512 tokens pays its seats a third more than checking it costs."""
    base = load_terms(Path("base-sepolia"), CONFIG.digest, 65_536)
    work = CONFIG.work.model_copy(update={"max_new_tokens": 512})
    largest = CONFIG.model_copy(update={"work": work, "scoring_versions": {"numpy": "1"}})
    assert costs(largest, base, 0)["check"] == 164_736_000
    short, *others = warnings(largest, replace(base, fee=219_647_999))
    assert short.what.startswith("checking a full file can cost a seat 0.164736 tokens and earns 0.219647999")
    assert short.hint == "raise `fee` to 0.219648, lower `audit_rate`, or make files smaller"
    for enough in (base, replace(base, fee=219_648_000)):
        assert list(map(str, warnings(largest, enough))) == list(map(str, others))


def test_what_a_file_costs_and_how_many_the_budget_buys() -> None:
    cost = costs(CONFIG, TERMS, BUDGET)
    assert (cost["units"], cost["pay"], cost["fees"]) == (8192, 819_200_000, 30_000_000)
    assert cost["files"] == BUDGET // 849_200_000 == 2355
    assert cost["wanted"] == 120
    assert "2355 full files, 588 training steps" in costs_text(cost)
    assert "adds the rest later" in costs_text(costs(CONFIG, TERMS, 10 * TOKEN))
    bought = CONFIG.model_copy(update={"data": DataConfig(rollouts=1000)})
    cost = costs(bought, TERMS, BUDGET)
    assert cost["wanted"] == 8, "whole files of 128"
    assert "1000 rollouts take  8 files" in costs_text(cost)
    assert f"{cost['files'] * 128} rollouts" in costs_text(cost)
    lagging = replace(TERMS, maxLag=0)
    assert contradictions(CONFIG, lagging, BUDGET)
    assert contradictions(bought, lagging, BUDGET) == []


def test_an_unknown_task_or_a_folder_without_a_model_is_named_and_the_demos_pool_can_work(tmp_path: Path) -> None:
    assert contradictions(CONFIG, TERMS, BUDGET) == []
    assert world_problems(CONFIG) == []
    for environment, words in (
        (EnvironmentConfig(name="sums"), "unknown environment `sums`"),
        (EnvironmentConfig(name="reasoning_gym/chain_sum", params={"min_turms": 3}), "min_turms"),
    ):
        (problem,) = world_problems(CONFIG.model_copy(update={"environments": (environment,)}))
        assert words in str(problem)
    assert "holds no model" in missing_model(str(tmp_path))
    assert "there is no folder" in missing_model(str(tmp_path / "none"))
    (tmp_path / "config.json").write_text("{}")
    assert missing_model(str(tmp_path)) == ""


def test_the_command_needs_neither_chain_nor_key(tmp_path: Path) -> None:
    config, terms = write_pool_files(tmp_path)
    muster, order = Muster(tmp_path), ("pool", "check", "--config", config, "--terms", terms, "--budget")
    assert "this pool can work" in muster.run(*order, "500", timeout=300.0).out
    done = muster.run(*order, "1", "--json", timeout=300.0)
    assert done.code == 1
    assert "the budget is 1 tokens" in done.json["problems"][0]
    assert load_terms(terms, bytes(32), PoolConfig.load(config).work.units).maxUnits == 4096


def test_a_slow_pool_is_refused_in_one_line_but_none_that_is_quick_or_left_or_could_not_be_looked_at(
    service: StubService, suite: Suite, muster: Muster, key: Key
) -> None:
    def made(seconds: float, announced: bool = True) -> int:
        """A pool with such a program."""
        own = EnvironmentConfig(name="program", label="own", content="ab" * 32, params={"seconds": seconds})
        service.config = pool_files.CONFIG.model_copy(update={"environments": (own,)})
        number = create_pool(suite, muster.home, service.config.digest)
        if announced:
            suite.court.announce_service(number, service.url).send()
        return number

    pool = made(0.5)
    said = muster.refused("validator", "judge", *key.options, "--pool", pool)
    assert f"pool {pool} is refused: own: scoring a lane of 16 files may take 2304 calls of 0.5 s" in said
    assert "its owner can mend that: set `params.seconds` to 0.013 or less" in said
    said = muster.refused("validator", "judge", "--stop", *key.options, "--pool", pool)
    assert "none of your seats is left to change" in said
    said = muster.refused("validator", "judge", *key.options, "--pool", made(0.013))
    assert "has 0 tokens and needs 100" in said
    pool = made(0.5, announced=False)
    said = muster.run("validator", "judge", *key.options, "--pool", pool).err
    assert f"pool {pool}: whether it can be judged in time was not checked: its owner announced no service" in said
    assert "has 0 tokens and needs 100" in said
