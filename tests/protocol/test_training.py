"""What a pool's document may say about training: unknown names and senseless combinations are refused in one line."""

import json
from typing import Any

import pytest

from protocol.config import PoolConfig
from protocol.errors import ConfigError
from protocol.training import DppoConfig, GspoConfig

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


def test_a_loss_is_chosen_by_name_and_survives_the_canonical_document() -> None:
    chosen = document(algorithm(loss={"name": "gspo"}, normaliser="sequences"))
    assert chosen.train.algorithm.loss == GspoConfig()
    again = PoolConfig.parse(chosen.canonical(), "it")
    assert (again, again.digest) == (chosen, chosen.digest)
    assert document(algorithm(loss={"name": "dppo", "mask_low": 0.1})).train.algorithm.loss == DppoConfig(mask_low=0.1)


def test_one_sided_clipping_is_a_null_delta() -> None:
    config = document(algorithm(loss={"name": "grpo", "delta": None}))
    assert PoolConfig.parse(config.canonical(), "it") == config
