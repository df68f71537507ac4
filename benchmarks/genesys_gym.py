"""Problems of reasoning_gym's datasets as rows: named by dataset and seed, made anew by whoever scores them."""

from collections.abc import Iterator
from importlib import metadata
from typing import Any

from environments.gym import APART, OFFERED, GymEnvironment


def gym_rows(each: int) -> Iterator[dict[str, Any]]:
    """So many of every dataset that has reference answers and is made in this process."""
    version = metadata.version("reasoning_gym")
    for dataset in sorted(OFFERED - APART.keys()):
        environment = GymEnvironment(dataset, {"score_threshold": 0})
        for seed in range(each):
            problem = environment.problem(seed)
            if problem.answer:
                yield {
                    "problem_id": f"reasoning_gym {version}/{dataset}:{seed}",
                    "source": f"reasoning_gym {version}",
                    "in_source_id": f"{dataset}:{seed}",
                    "task_type": "reasoning_gym",
                    "prompt": problem.question,
                    "gold_standard_solution": problem.answer,
                    "verification_info": {"dataset": dataset, "seed": seed, "params": {}},
                    "metadata": {"licence": "Apache-2.0"},
                }
