"""Three environments at once on the whole local network, one of them with a tool and three turns: honest files are
accepted and trained on, and a worker that forges the tool's answers is slashed and ejected."""

from collections import Counter
from pathlib import Path

import pytest

from chain.indexer.state import State
from engines.runtime import vllm_installed
from environments.pool import PoolEnvironments
from localnet.plan import DemoPlan, NodeSpec, ValidatorSpec, pool_config
from protocol.config import EnvironmentConfig, PoolConfig
from tests.e2e.networks import PlainDemo, accepted, check_nodes, metrics_of, network_plan, rows_of
from trainer.model.base_model import base_model

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(1500)]
STEPS = 3


def mixed_config() -> PoolConfig:
    """Three environments at once: a tool that is used in up to three turns, which the base model has been shown, and
    sums and words, which it has not."""
    config = pool_config(1, STEPS)
    words = EnvironmentConfig(name="reasoning_gym/spell_backward", params={"min_word_len": 3, "max_word_len": 4})
    environments = (EnvironmentConfig(name="lookup"), *config.environments, words)
    work = config.work.model_copy(update={"max_prompt_tokens": 128})
    return config.model_copy(update={"environments": environments, "work": work})


def test_a_pool_of_three_environments_trains_on_turns_and_ejects_who_forges_a_tool(tmp_path: Path) -> None:
    fast = "vllm" if vllm_installed() else "transformers"
    nodes = (
        NodeSpec("ada", fast),
        NodeSpec("bob", "transformers"),
        NodeSpec("mallory", "transformers", "forged-reply"),
    )
    judges = (ValidatorSpec("xena", 6), ValidatorSpec("wanda", 6, engine=fast, batch=16))
    plan, config = network_plan(tmp_path, STEPS, nodes, judges, worker_batch=128, patience=2), mixed_config()
    demo = PlainDemo(plan, config)
    with demo.settled() as state:
        check_nodes(demo, state)
        check_turns(plan, config, state)
        # Every environment gave rewards in some step, and every step was trained.
        seen = {name for one in metrics_of(plan) for name in one["rewards_by_environment"]}
        assert seen == {one.called for one in config.environments}


def check_turns(plan: DemoPlan, config: PoolConfig, state: State) -> None:
    """Accepted files have rollouts of two and three turns, and right sums of what the tool said. Hardly
    any has one turn: the base model was shown that the tool comes first."""
    environment = PoolEnvironments.of(config, base_model(config.model, config.environments[0], plan.seed))
    turns, solved = Counter[int](), 0
    for file in accepted(state):
        for row in rows_of(plan, config, file.sha256):
            if environment.settings(row.problem_seed).called == "lookup":
                count = len(environment.transcript(row.problem_seed, row.output_tokens).turns)
                turns[count] += 1
                solved += count == 3 and row.task_reward > 0.99
    assert {2, 3} <= set(turns) <= {1, 2, 3}, turns
    assert turns[3] > 20
    assert solved > 0
