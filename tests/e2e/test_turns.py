"""Three environments at once on the whole local network, one of them with a tool and three turns: honest files are
accepted and trained on, and a worker that forges the tool's answers is slashed and ejected."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from chain.indexer.records import Status
from chain.indexer.state import State
from engines.runtime import vllm_installed
from environments.pool import PoolEnvironments
from localnet.demo import Demo, Disputer, Onlooker, settle_accounts
from localnet.plan import POOL, DemoPlan, NodeSpec, ValidatorSpec, mixed_config
from localnet.ports import claim_port
from protocol.config import PoolConfig
from protocol.rollout_file.file import read
from protocol.rollout_file.rows import Limits, Rollout
from trainer.model.base_model import base_model
from trainer.reports.records import Records

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(1500)]
STEPS = 3


class ToolDemo(Demo):
    """Nobody lazy, nobody absent: who has done honest work may dispute."""

    def onlookers(self) -> list[Onlooker]:
        return [Disputer(self.onboarding, self.say)]

    @contextmanager
    def settled(self) -> Iterator[State]:
        """The whole run, until everybody is paid: what the chain says then. Taken down at the end."""
        try:
            self.bring_up()
            monitor = self.follow()
            settle_accounts(monitor, self.onboarding.client("deployer").now, self.network.check, self.say)
            yield monitor.state
        finally:
            self.network.supervisor.stop()


def test_a_pool_of_three_environments_trains_on_turns_and_ejects_who_forges_a_tool(tmp_path: Path) -> None:
    chain, s3, http = (claim_port(name, 0) for name in ("chain", "s3", "http"))
    fast = "vllm" if vllm_installed() else "transformers"
    nodes = (
        NodeSpec("ada", fast),
        NodeSpec("bob", "transformers"),
        NodeSpec("mallory", "transformers", "forged-reply"),
    )
    judges = (ValidatorSpec("xena", 6), ValidatorSpec("wanda", 6, engine=fast, batch=16))
    plan = DemoPlan(tmp_path, 1, STEPS, chain, s3, http, nodes, judges, absentee="", worker_batch=128, patience=2)
    config = mixed_config(1, STEPS)
    demo = ToolDemo(plan, config)
    with demo.settled() as state:
        check_nodes(demo, state)
        check_turns(plan, config, state)
        check_training(plan, config)


def check_nodes(demo: ToolDemo, state: State) -> None:
    address = {name: demo.ring[f"node-{name}"].address for name in ("ada", "bob", "mallory")}
    files = {name: [sub for sub in state.submissions_of(POOL) if sub.node == own] for name, own in address.items()}
    for name in ("ada", "bob"):
        assert files[name]
        assert all(sub.status is Status.ACCEPTED for sub in files[name]), name
    assert files["mallory"]
    assert all(sub.status is Status.REJECTED for sub in files["mallory"])
    assert state.accounts[POOL, address["mallory"]].ejected


def check_turns(plan: DemoPlan, config: PoolConfig, state: State) -> None:
    """Accepted files have rollouts of two and three turns, and right sums of what the tool said. Hardly
    any has one turn: the base model was shown that the tool comes first."""
    environment = PoolEnvironments.of(config, base_model(config.model, config.environments[0], plan.seed))
    turns, solved = Counter[int](), 0
    for sub in state.submissions_of(POOL):
        for row in rows_of(plan, config, sub.sha256) if sub.status is Status.ACCEPTED else ():
            if environment.settings(row.problem_seed).called == "lookup":
                count = len(environment.transcript(row.problem_seed, row.output_tokens).turns)
                turns[count] += 1
                solved += count == 3 and row.task_reward > 0.99
    assert {2, 3} <= set(turns) <= {1, 2, 3}, turns
    assert turns[3] > 20
    assert solved > 0


def rows_of(plan: DemoPlan, config: PoolConfig, digest: bytes) -> list[Rollout]:
    found = httpx.get(f"{plan.http_url}/v1/objects/rollouts/{digest.hex()}.parquet", follow_redirects=True, timeout=60)
    assert found.status_code == 200
    return read(found.content, Limits.of(config.work))[1]


def check_training(plan: DemoPlan, config: PoolConfig) -> None:
    """Every environment gave rewards in some step, and every step was trained."""
    (home,) = (path for path in plan.home("trainer").iterdir() if (path / "metrics.jsonl").exists())
    metrics = Records(home).metrics()
    assert len(metrics) == STEPS
    seen = {name for one in metrics for name in one["rewards_by_environment"]}
    assert seen == {one.called for one in config.environments}
