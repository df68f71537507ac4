"""A package of the verifiers library from an index, which nobody here wrote, as an environment of a pool on the whole
local network: its rubric pays, seats agree on it, the trainer learns from it, and who claims more is ejected."""

from dataclasses import replace
from pathlib import Path

import pytest

from chain.indexer.state import State
from environments.base import Problem
from environments.pool import PoolEnvironments
from environments.registry import data_folder, load_environment
from environments.verifiers.environment import lock_package
from localnet.plan import DEMO_ENVIRONMENT, POOL, DemoPlan, NodeSpec
from protocol.config import EnvironmentConfig, EvaluationConfig, EvaluationSet, PoolConfig
from protocol.verdict import Code
from tests.e2e.networks import (
    JUDGES,
    PlainDemo,
    accepted,
    check_nodes,
    metrics_of,
    network_plan,
    rows_of,
    small_files,
)
from trainer.model.base_model import Recipe, warm_up

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(2400)]
STEPS = 2
SUMS = {"min_terms": 2, "max_terms": 3, "min_digits": 1, "max_digits": 1}


class TaggedSums:
    """What the tiny model is warmed up on: sums whose answers stand in the tags that the package reads."""

    def __init__(self) -> None:
        self._sums = load_environment(EnvironmentConfig(name="reasoning_gym/chain_sum", params=SUMS))
        self.declared, self.rows = self._sums.declared, 0

    def problem(self, seed: int) -> Problem:
        plain = self._sums.problem(seed)
        return replace(plain, answer=f"<answer>{plain.answer}</answer>")

    def score(self, problem: Problem, answer_text: str) -> float:
        return float(answer_text == problem.answer)


def test_a_package_of_strangers_pays_and_teaches(tmp_path: Path) -> None:
    nodes = NodeSpec("ada", "transformers"), NodeSpec("mallory", "transformers", "inflated-reward")
    plan = network_plan(tmp_path, STEPS, nodes, JUDGES, worker_batch=128, patience=6)
    base = tmp_path / "base"
    warm_up(base, TaggedSums(), plan.seed, Recipe())
    config = package_config(base)
    demo = PlainDemo(plan, config)
    with demo.settled() as state:
        check_nodes(demo, state)
        check_seats(state)
        check_rewards(plan, config, state)
        check_training(plan)


def package_config(base: Path) -> PoolConfig:
    """The library's own environment of reasoning_gym, as it came from the index, beside sums without tags."""
    gym = [{"name": "chain_sum", "weight": 1.0, "config": SUMS}]
    load = "verifiers.envs.integrations.reasoninggym_env:ReasoningGymEnv"
    lock = lock_package(data_folder(), "verifiers[rg]==0.2.1", load, {"gym": gym, "system_prompt": ""}, build=True)
    package = EnvironmentConfig(name="verifiers", label="package", content=lock.content, rows=lock.rows, weight=3)
    evaluation = EvaluationConfig(sets=(EvaluationSet(name="held-out", problems=16),))
    config = small_files(base, STEPS, package, DEMO_ENVIRONMENT, problems_per_file=8)
    return config.model_copy(update={"evaluation": evaluation})


def check_seats(state: State) -> None:
    """All seats of a committee that revealed a vote revealed the same one."""
    compared = 0
    for sub in state.submissions_of(POOL):
        for one in state.lane_of(sub).rounds:
            votes = [one.code_at(sub.place, member) for member in one.reveals]
            said = {code for code in votes if code not in (Code.NONE, Code.UNAVAILABLE)}
            assert len(said) <= 1, (sub.sequence, votes)
            compared += len(votes) > 1 and len(said) == 1
    assert compared


def check_rewards(plan: DemoPlan, config: PoolConfig, state: State) -> None:
    """Rows of accepted files have what the package gives: some the whole reward, most none."""
    environments = PoolEnvironments.of(config, Path(config.model.source))
    rewards = [
        row.task_reward
        for file in accepted(state)
        for row in rows_of(plan, config, file.sha256)
        if environments.settings(row.problem_seed).called == "package"
    ]
    assert len(rewards) > 100
    assert {0.0, 1.0} == set(rewards)


def check_training(plan: DemoPlan) -> None:
    """Every step was trained, on rewards of the package too."""
    earned = [one["rewards_by_environment"].get("package", 0.0) for one in metrics_of(plan)]
    assert max(earned) > 0, earned
