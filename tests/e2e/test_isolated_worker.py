"""Workers in a podman container, of an image made from this machine's files, and in bubblewrap, against a real network:
files of both are accepted."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from chain.indexer.records import Status, Submission
from chain.indexer.state import State
from localnet.plan import POOL, DemoPlan, NodeSpec, ValidatorSpec, make_plan, pool_config
from tests.e2e.building import build_wheel
from tests.e2e.networks import CaseDemo
from tests.sandbox.conftest import need
from tools.structure import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(2400)]
MODES = {"container": "podman", "bubblewrap": "bubblewrap"}
"""A node per mode, named as the configuration does → what it comes to here."""


@pytest.fixture(scope="module")
def worker_image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Named by MUSTER_WORKER_IMAGE, or made."""
    need("podman")
    if made := os.environ.get("MUSTER_WORKER_IMAGE"):
        yield made
        return
    folder = tmp_path_factory.mktemp("worker-image")
    argv = [sys.executable, "-m", "tools.worker_image", "--tar", str(folder / "worker.tar")]
    wheel = build_wheel(folder)
    done = subprocess.run(
        [*argv, "--wheel", str(wheel)], cwd=ROOT, capture_output=True, text=True, timeout=1200, check=False
    )
    assert done.returncode == 0, done.stderr
    made = done.stdout.strip()
    yield made
    subprocess.run(["podman", "rmi", "--force", made], capture_output=True, timeout=120, check=False)


class IsolatedDemo(CaseDemo):
    """One worker in a container, one in bubblewrap, up to the first file of each that is judged."""

    def __init__(self, plan: DemoPlan, image: str) -> None:
        super().__init__(plan, pool_config(plan.seed, plan.steps))
        self.image = image

    def start_nodes(self) -> None:
        self.network.isolation = {"isolation": "bubblewrap"}
        for validator in self.plan.validators:
            self.network.start_validator(POOL, validator)
        for node in self.plan.nodes:
            self.network.isolation = {"isolation": node.name, "isolation_image": self.image}
            self.network.start_worker(POOL, node)

    def log(self, name: str) -> str:
        return self.plan.log(f"worker-{name}").read_text()


def first_judged(state: State) -> dict[str, Submission]:
    """Node's address → its first file that is judged."""
    return {one.node: one for one in reversed(state.submissions.values()) if one.decided_block}


def plan_of_two(runs: Path) -> DemoPlan:
    nodes = tuple(NodeSpec(name, "transformers") for name in MODES)
    return replace(make_plan(runs, 3, 2), nodes=nodes, validators=(ValidatorSpec("xena", 12),))


def containers() -> set[str]:
    argv = ["podman", "ps", "--all", "--filter=name=muster-", "--format={{.Names}}"]
    return set(subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout.split())


def test_isolated_workers_earn(worker_image: str, tmp_path: Path) -> None:
    need("bwrap")
    before = containers()
    demo = IsolatedDemo(plan_of_two(tmp_path), worker_image)
    with demo.up():
        monitor = demo._new_monitor()
        judged = first_judged(demo.wait(monitor, lambda state: len(first_judged(state)) == len(MODES), seconds=900))
        assert len(containers() - before) == 1
    for name, mode in MODES.items():
        assert judged[demo.ring[f"node-{name}"].address].status is Status.ACCEPTED, demo.log(name)
        assert f"isolation: {mode}" in demo.log(name)
        assert "NOT protected: services on this machine's loopback" in demo.log(name), "it uses the host's network"
    assert containers() == before, "the container outlived the network"
