"""Whole local networks of a test's own participants, and what all of them must show."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from chain.indexer.records import Status, Submission
from chain.indexer.state import State
from engines.torch_process import vllm_installed
from environments.pool import PoolEnvironments
from localnet.demo import Demo, Onlooker, RunMonitor, honest_work
from localnet.plan import POOL, DemoPlan, NodeSpec, ValidatorSpec, pool_config
from localnet.ports import claim_port
from protocol.config import EnvironmentConfig, PoolConfig
from protocol.rollout_file.file import read
from protocol.rollout_file.rows import Limits, Rollout
from tests.e2e.running import muster
from trainer.reports.records import Records

FAST = "vllm" if vllm_installed() else "transformers"
JUDGES = ValidatorSpec("xena", 6), ValidatorSpec("wanda", 6, engine=FAST, batch=16)
"""They compute differently, and have to agree."""


def small_files(base: Path, steps: int, *environments: EnvironmentConfig, **work: int) -> PoolConfig:
    """A pool of the model folder `base` and these environments, which trains on two small files a step."""
    config = pool_config(1, steps)
    changed = {
        "environments": environments,
        "model": config.model.model_copy(update={"source": str(base)}),
        "work": config.work.model_copy(update=work),
        "train": config.train.model_copy(update={"files_per_step": 2, "max_off_policy_steps": 2, "minibatches": 2}),
    }
    return config.model_copy(update=changed)


def network_plan(
    root: Path, steps: int, nodes: tuple[NodeSpec, ...], validators: tuple[ValidatorSpec, ...], **more: Any
) -> DemoPlan:
    """A network of nobody else, at free ports."""
    chain, s3, http = (claim_port() for _ in range(3))
    return DemoPlan(root, 1, steps, chain, s3, http, nodes, validators, **more)


class CaseDemo(Demo):
    """A network that a test brings up and looks at."""

    @contextmanager
    def up(self) -> Iterator[None]:
        """Taken down at the end of the block."""
        try:
            self.bring_up()
            yield
        finally:
            self.network.supervisor.stop()

    def wait(self, monitor: RunMonitor, until: Callable[[State], bool], seconds: float = 600) -> State:
        """What the chain says once it says so."""
        end = time.monotonic() + seconds
        while True:
            self.network.check()
            monitor.look()
            if until(monitor.state):
                return monitor.state
            assert time.monotonic() < end, monitor.state.submissions
            time.sleep(1)


class PlainDemo(CaseDemo):
    """Nobody lazy, nobody absent: who has done honest work may dispute."""

    def onlookers(self) -> list[Onlooker]:
        return [self.disputes(honest_work)]

    @contextmanager
    def settled(self) -> Iterator[State]:
        """The whole run, until everybody is paid: what the chain says then."""
        with self.up():
            monitor = self.follow()
            self.settle(monitor)
            yield monitor.state


def check_nodes(demo: Demo, state: State, all_refused: bool = True) -> None:
    """Every file of honest nodes is accepted; cheats have all of theirs refused, or one at least, and are ejected."""
    for node in demo.plan.nodes:
        address = demo.ring[f"node-{node.name}"].address
        files = [file for file in state.submissions_of(POOL) if file.node == address]
        refused = [file.status is Status.REJECTED for file in files]
        assert files, node.name
        if node.attack:
            assert all(refused) if all_refused else any(refused), node.name
            assert state.accounts[POOL, address].ejected
        else:
            assert all(file.status is Status.ACCEPTED for file in files), node.name


def accepted(state: State) -> Iterator[Submission]:
    yield from (file for file in state.submissions_of(POOL) if file.status is Status.ACCEPTED)


def asked(plan: DemoPlan, *words: object, code: int = 0) -> Any:
    """What a command prints as JSON about the plan's network. It exits with `code`."""
    where = "--deployment", plan.deployment, "--rpc", plan.rpc_url, "--json"
    done = muster(*map(str, (*words, *where)), timeout=180)
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


def count_turns(plan: DemoPlan, config: PoolConfig, base: Path, state: State, called: str) -> tuple[Counter[int], int]:
    """How many rollouts of an environment in accepted files have how many turns, and how many of three turns earn all.
    `base` is the folder of policy step 0."""
    environments = PoolEnvironments.of(config, base)
    turns, solved = Counter[int](), 0
    for file in accepted(state):
        for row in rows_of(plan, config, file.sha256):
            if environments.settings(row.problem_seed).called == called:
                count = len(environments.transcript(row.problem_seed, row.output_tokens).turns)
                turns[count] += 1
                solved += count == 3 and row.task_reward > 0.99
    return turns, solved


def rows_of(plan: DemoPlan, config: PoolConfig, digest: bytes) -> list[Rollout]:
    found = httpx.get(f"{plan.http_url}/v1/objects/rollouts/{digest.hex()}.parquet", follow_redirects=True, timeout=60)
    assert found.status_code == 200
    return read(found.content, Limits.of(config.work))[1]


def metrics_of(plan: DemoPlan) -> list[dict[str, Any]]:
    """The trainer's, of every step of the plan."""
    (home,) = (path for path in plan.home("trainer").iterdir() if (path / "metrics.jsonl").exists())
    metrics = Records(home).metrics()
    assert len(metrics) == plan.steps
    return metrics
