"""Three environments at once on the whole local network, one of them with a tool and three turns: honest files are
accepted and trained on, and a worker that forges the tool's answers is slashed and ejected."""

from pathlib import Path

import pytest

from localnet.plan import NodeSpec, pool_config
from protocol.config import EnvironmentConfig, PoolConfig
from tests.e2e.networks import FAST, JUDGES, PlainDemo, check_nodes, count_turns, metrics_of, network_plan
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
    honest = NodeSpec("ada", FAST), NodeSpec("bob", "transformers")
    nodes = *honest, NodeSpec("mallory", "transformers", "forged-reply")
    plan, config = network_plan(tmp_path, STEPS, nodes, JUDGES, worker_batch=128, patience=2), mixed_config()
    demo = PlainDemo(plan, config)
    with demo.settled() as state:
        check_nodes(demo, state)
        base = base_model(config.model, config.environments[0], plan.seed)
        turns, solved = count_turns(plan, config, base, state, "lookup")
        # Hardly any has one turn: the base model was shown that the tool comes first.
        assert {2, 3} <= set(turns) <= {1, 2, 3}, turns
        assert turns[3] > 20
        assert solved > 0, "right sums of what the tool said"
        # Every environment gave rewards in some step, and every step was trained.
        seen = {name for one in metrics_of(plan) for name in one["rewards_by_environment"]}
        assert seen == {one.called for one in config.environments}
