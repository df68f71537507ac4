"""What the demo's processes are told."""

import json
import threading
from pathlib import Path

import pytest

from chain.network import NetworkConfig
from localnet.accounts import KeyRing
from localnet.network import Network
from localnet.plan import POOL
from localnet.progress import Stop
from localnet.real_pool import real_plan
from localnet.supervisor import Child, Supervisor


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Network:
    """Of the real model's plan; processes are not started."""

    def not_started(_self: Supervisor, child: Child) -> Child:
        return child

    monkeypatch.setattr(Supervisor, "start", not_started)
    plan = real_plan(tmp_path, 1, 24, (1, 2, 3))
    return Network(plan, KeyRing(tmp_path / "keys"), print, Stop.__new__(Stop))


def test_the_trainer_measures_held_out_reward_in_what_the_workers_compute_in(network: Network) -> None:
    network.start_trainer(POOL, Path("base"))
    told = json.loads((network.plan.root / "configs" / "trainer.json").read_text())
    assert told["engine"] == {"name": "transformers", "dtype": "bfloat16", "threads": 2}
    assert told["memory"] == {"row_tokens": 1024}, "rows of the default size take nine gigabytes of this model"
    network.start_worker(POOL, network.plan.nodes[0])
    node = json.loads((network.plan.root / "configs" / f"worker-{network.plan.nodes[0].name}.json").read_text())
    assert node["engine"]["dtype"] == told["engine"]["dtype"]


def test_every_role_waits_for_as_many_confirmations_as_the_network_asks_for(network: Network) -> None:
    network.start_worker(POOL, network.plan.nodes[0])
    network.start_validator(POOL, network.plan.validators[0])
    network.start_trainer(POOL, Path("base"))
    told = [json.loads(path.read_text())["confirmations"] for path in (network.plan.root / "configs").iterdir()]
    assert told == [NetworkConfig.load("local").confirmations] * 3


def test_who_stops_it_while_it_waits_interrupts_it(network: Network) -> None:
    network.supervisor.children["chain"] = Child("chain", [], network.plan.log("chain"))
    network.stop_requested._event = threading.Event()
    network.stop_requested._event.set()
    with pytest.raises(KeyboardInterrupt):
        network.wait("the chain to start", lambda: False, "chain")
