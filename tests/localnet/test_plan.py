"""What a run plans, and what its processes are told."""

import json
from pathlib import Path

import pytest

from chain.indexer.state import needed
from localnet.network import Network, Stop
from localnet.onboarding import KeyRing
from localnet.plan import POOL, make_plan, new_run_folder, pool_config, pool_terms
from localnet.real import real_plan
from runtime.supervisor import Child, Supervisor


def test_the_latest_run_is_found_by_its_link(tmp_path: Path) -> None:
    first, second = new_run_folder(tmp_path, 7), new_run_folder(tmp_path, 7)
    assert first != second
    assert (tmp_path / "latest").resolve() == second
    assert "seed7" in second.name


@pytest.mark.parametrize("installed", [True, False])
def test_honest_validators_compute_differently_and_vllm_is_used_where_it_is(
    installed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localnet.plan.vllm_installed", lambda: installed)
    plan = make_plan(tmp_path, 7, 2)
    honest = {(one.engine, one.batch) for one in plan.validators if not one.attack}
    assert len(honest) == 2
    assert ("vllm" in {node.engine for node in plan.nodes}) == installed
    (lazy,) = [one for one in plan.validators if one.attack == "lazy"]
    others = sum(one.seats for one in plan.validators if one is not lazy)
    assert (others, lazy.seats) == (needed(pool_terms(pool_config(7, 2))), 1)
    assert [node.name for node in plan.nodes if node.cheats] == ["mallory"]
    assert len({plan.chain_port, plan.s3_port, plan.http_port}) == 3
    assert json.loads(plan.write_config("trainer", {"home": plan.home("trainer")}).read_text()) == {
        "home": str(tmp_path / "latest" / "homes" / "trainer").replace("latest", plan.root.name)
    }


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Network:
    """Of the real model's plan; processes are not started."""

    def not_started(_self: Supervisor, child: Child) -> Child:
        return child

    monkeypatch.setattr(Supervisor, "start", not_started)
    plan = real_plan(tmp_path, 1, 24, (1, 2, 3))
    return Network(plan, KeyRing(tmp_path / "keys"), print, Stop.__new__(Stop))


def test_roles_compute_alike_and_wait_for_no_confirmations_on_a_chain_of_their_own(network: Network) -> None:
    network.start_worker(POOL, network.plan.nodes[0])
    network.start_validator(POOL, network.plan.validators[0])
    network.start_trainer(POOL, Path("base"))
    told = {path.stem: json.loads(path.read_text()) for path in (network.plan.root / "configs").iterdir()}
    assert [one["confirmations"] for one in told.values()] == [0, 0, 0]
    trainer, worker = told["trainer"], told[f"worker-{network.plan.nodes[0].name}"]
    assert trainer["engine"] == {"name": "transformers", "dtype": "bfloat16", "threads": 2}
    assert trainer["memory"] == {"row_tokens": 1024}, "rows of the default size take nine gigabytes of this model"
    assert worker["engine"]["dtype"] == trainer["engine"]["dtype"]


def test_who_stops_it_while_it_waits_interrupts_it(network: Network) -> None:
    network.supervisor.children["chain"] = Child("chain", [], network.plan.log("chain"))
    network.stop_requested.asked = True
    with pytest.raises(KeyboardInterrupt):
        network.wait("the chain to start", lambda: False, "chain")
