"""A sequencer that halts for an hour beneath the whole local network: no honest party pays, and the run goes on."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from chain.indexer.records import Status
from chain.indexer.state import State
from localnet import demo as demos
from localnet.network import LOCAL
from localnet.plan import POOL, NodeSpec, pool_config
from tests.e2e.networks import JUDGES, CaseDemo, network_plan
from validator.decide import deciding_round

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(1800)]
HOUR = 3600
PATIENCE = 150
"""Windows of an hour and more, as on Base, whose unbonding time bounds those of a pool."""


def test_no_honest_party_pays_for_a_halt_of_an_hour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = LOCAL.suite.model_copy(update={"unbonding": 14 * 86_400})
    monkeypatch.setattr(demos, "LOCAL", LOCAL.model_copy(update={"suite": suite}))
    nodes = NodeSpec("ada", "transformers"), NodeSpec("grace", "transformers")
    plan = network_plan(tmp_path, 30, nodes, JUDGES, patience=PATIENCE)
    demo = CaseDemo(plan, pool_config(1, plan.steps))
    with demo.up():
        client = demo.onboarding.client("deployer")
        monitor = demo._new_monitor()
        demo.wait(monitor, lambda state: accepted(state) >= 4 and voting(state))
        before = len(monitor.state.submissions_of(POOL))
        halt(demo, client)
        demo.wait(monitor, lambda state: all(decided(state)[:before]) and accepted(state) > before)
        check_nobody_paid(monitor.state)


def halt(demo: CaseDemo, client: Any) -> None:
    """No block for 20 seconds, while everybody goes on; the next one is an hour later."""
    chain = demo.network.supervisor.children["chain"].pid
    assert chain is not None
    os.kill(chain, signal.SIGSTOP)
    try:
        head = client.head().number
        time.sleep(20)
        assert client.head().number == head
        client.request("evm_increaseTime", [HOUR])
    finally:
        os.kill(chain, signal.SIGCONT)


def accepted(state: State) -> int:
    return sum(file.status is Status.ACCEPTED for file in state.submissions_of(POOL))


def decided(state: State) -> list[bool]:
    return [file.status is not Status.PENDING for file in state.submissions_of(POOL)]


def voting(state: State) -> bool:
    """Whether a committee is drawn and has not settled."""
    return any(lane.round.seats and not lane.round.settled for lane in state.lanes_of(POOL))


def check_nobody_paid(state: State) -> None:
    files = state.submissions_of(POOL)
    assert state.slashes == []
    assert {file.status for file in files} <= {Status.ACCEPTED, Status.PENDING}
    assert [deciding_round(state, file) for file in files if file.status is Status.ACCEPTED]
    assert not [account for account in state.accounts.values() if account.ejected]
