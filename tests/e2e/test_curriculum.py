"""A pool with a curriculum on the whole local network: problems leave and come back, honest files are accepted all the
while, a worker that draws what totals is slashed and ejected, and every table follows from chain and bucket alone."""

from itertools import pairwise
from pathlib import Path

import pytest

from localnet.plan import POOL, DemoPlan, NodeSpec, ValidatorSpec, pool_config
from protocol.config import Curriculum, PoolConfig, ProblemFilter
from tests.e2e.networks import PlainDemo, asked, check_nodes, network_plan

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(2400)]
STEPS = 16


def learning_config(seed: int, steps: int) -> PoolConfig:
    """Twenty problems and small files; what became final during two steps counts."""
    base = pool_config(seed, steps)
    learn = Curriculum(tries=4, lowest=300, highest=700, window=2, most=800)
    problems = ProblemFilter.of(20, tuple(range(20)))
    environment = base.environments[0].model_copy(update={"problems": problems, "curriculum": learn})
    work = base.work.model_copy(update={"samples_per_problem": 4})
    train = base.train.model_copy(update={"files_per_step": 2, "max_off_policy_steps": 2})
    return base.model_copy(update={"environments": (environment,), "work": work, "train": train})


def test_problems_leave_and_come_back(tmp_path: Path) -> None:
    nodes = (NodeSpec("ada", "transformers"), NodeSpec("mallory", "transformers", "masked-problems"))
    plan = network_plan(tmp_path, STEPS, nodes, (ValidatorSpec("xena", 12),), worker_batch=128, patience=2)
    demo = PlainDemo(plan, learning_config(1, STEPS))
    with demo.settled() as state:
        check_nodes(demo, state, all_refused=False)
        check_tables(plan)


def check_tables(plan: DemoPlan) -> None:
    """What a stranger sees who asks for every step: each table is right; problems are masked, and unmasked again."""
    masked = []
    for step in range(STEPS + 1):
        found = asked(plan, "verify", "curriculum", step, "--pool", POOL, "--pool", plan.http_url)
        (counts,) = found["environments"].values()
        assert found["left_out"] == []
        masked.append((counts["hard"], counts["easy"]))
    totals = [hard + easy for hard, easy in masked]
    assert any(hard for hard, _ in masked), masked
    assert any(easy for _, easy in masked), masked
    assert any(after < before for before, after in pairwise(totals)), f"none came back: {masked}"
