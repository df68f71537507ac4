"""A data pool on the whole local network: two workers sell what it buys, it closes by itself, and its data set
verifies from the command line."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from localnet.plan import POOL, DemoPlan, NodeSpec, ValidatorSpec, pool_config
from protocol.config import DataConfig
from tests.e2e.networks import CaseDemo, asked, network_plan

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(900)]
ROLLOUTS = 300
"""Three files of 128."""


def test_a_data_pool_buys_closes_and_is_exported(tmp_path: Path) -> None:
    nodes = (NodeSpec("ada", "transformers"), NodeSpec("bob", "transformers"))
    plan = network_plan(tmp_path, 1, nodes, (ValidatorSpec("xena", 11),), patience=2)
    config = pool_config(1, 1).model_copy(update={"data": DataConfig(rollouts=ROLLOUTS)})
    demo = CaseDemo(plan, config)
    with demo.up():
        monitor = demo._new_monitor()
        demo.wait(monitor, lambda _: demo.network.supervisor.children["trainer"].finished)
        monitor.look()
        state = monitor.state
        assert state.pools[POOL].status == "closing"
        assert len(state.submissions_of(POOL)) == 3, "no more slots than files that are bought"
        check_export(plan, tmp_path / "data-set")


def check_export(plan: DemoPlan, folder: Path) -> None:
    """Written and verified by the command line."""
    made = asked(plan, "dataset", "export", "--pool", POOL, "--pool", plan.http_url, "--out", folder)
    assert (made["rows"], made["submissions"]) == (384, 3)
    found = asked(plan, "dataset", "verify", folder)
    assert (found["rows"], found["sound"], found["findings"]) == (384, True, [])
    row = pq.read_table(folder / "data" / "rollouts-00000.parquet").slice(0, 1).to_pylist()[0]
    assert row["prompt"]
    assert row["environment"] == "reasoning_gym/chain_sum"
