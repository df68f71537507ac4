"""A worker in a podman container, of an image made from this machine's files, against a real network: one of its files
is accepted."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from chain.records import Status, Submission
from demo.plan import DemoPlan, NodeSpec, Options, ValidatorSpec, make_plan
from demo.pool import pool_config
from demo.run import Demo
from tests.e2e.building import build_wheel
from tests.isolation.conftest import need
from tools.sources import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(2400)]
NODE = "bob"


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


class ContainerDemo(Demo):
    """Up to the first file that is judged."""

    def __init__(self, plan: DemoPlan, image: str) -> None:
        super().__init__(plan, pool_config(plan.seed, plan.steps))
        self.network.worker_isolation = {"isolation": "container", "isolation_image": image}

    def first_judged(self, timeout: float) -> Submission:
        self.bring_up()
        monitor, end = self._new_monitor(), time.monotonic() + timeout
        while time.monotonic() < end:
            self.network.check()
            monitor.look()
            for submission in monitor.state.submissions.values():
                if submission.decided_block:
                    return submission
            time.sleep(0.5)
        raise AssertionError(self.plan.log(f"worker-{NODE}").read_text()[-4000:])


def plan_of_one(runs: Path) -> DemoPlan:
    whole = make_plan(Options(3, 2, runs))
    return replace(whole, nodes=(NodeSpec(NODE, "transformers"),), validators=(ValidatorSpec("xena", 12),))


def containers() -> list[str]:
    argv = ["podman", "ps", "--all", "--filter=name=muster-", "--format={{.Names}}"]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout.split()


def test_a_worker_in_a_container_earns(worker_image: str, tmp_path: Path) -> None:
    before = set(containers())
    demo = ContainerDemo(plan_of_one(tmp_path), worker_image)
    try:
        judged = demo.first_judged(timeout=900)
        log = demo.plan.log(f"worker-{NODE}").read_text()
        assert len(set(containers()) - before) == 1
    finally:
        demo.network.supervisor.stop()
    assert judged.status is Status.ACCEPTED, log
    assert judged.node == demo.ring[f"node-{NODE}"].address
    assert "isolation: podman" in log
    assert "NOT protected: services on this machine's loopback" in log, "it uses the host's network, and says so"
    assert set(containers()) == before, "the container outlived the network"
