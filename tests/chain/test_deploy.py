"""Deployment: idempotent, resumable, checked."""

import json
import time
from pathlib import Path

import pytest

from chain import deploy
from chain.deployment import Deployment, NetworkConfig
from chain.transactions import Call
from protocol.errors import ConfigError
from tests.conftest import Chain, Deployed, local


def test_a_deployment_describes_the_chain(deployed: Deployed) -> None:
    loaded = Deployment.load(deployed.folder / deploy.DEPLOYMENT)
    assert loaded == deployed.deployment
    loaded.check_chain(deployed.chain.client())
    suite = deployed.suite()
    assert suite.seats.bond() == 100 * 10**9
    assert suite.params.values()["slashBps"] == 10_000


def test_a_second_run_sends_nothing(deployed: Deployed) -> None:
    client = deployed.chain.client(deployed.governance)
    before = client.head().number
    again = deploy.deploy(client, local(deployed.chain), deployed.folder)
    assert again == deployed.deployment
    (deployed.folder / deploy.DEPLOYMENT).unlink()
    assert deploy.deploy(client, local(deployed.chain), deployed.folder).contracts == again.contracts
    assert client.head().number == before


def test_a_broken_run_is_finished_with_the_same_addresses(chain: Chain, tmp_path: Path) -> None:
    owner = chain.account()
    client = chain.client(owner)
    network = local(chain)
    plan = deploy.plan(client, network, tmp_path)
    assert not plan.complete
    assert len(plan.lines()) == 13
    assert not list(tmp_path.iterdir())

    class Broken(Exception):
        pass

    sent = []
    original = client.send_all

    def break_after_four(calls, timeout=300.0):  # type: ignore[no-untyped-def]
        for receipt in original(calls[:4], timeout):
            sent.append(receipt)
            yield receipt
        raise Broken

    client.send_all = break_after_four  # type: ignore[method-assign]
    with pytest.raises(Broken):
        deploy.deploy(client, network, tmp_path)
    assert len(sent) == 4
    assert not (tmp_path / deploy.DEPLOYMENT).exists()

    half = deploy.plan(chain.client(owner), network, tmp_path)
    assert [one.exists for one in half.creations] == [True] * 4 + [False] * 8
    done = deploy.deploy(chain.client(owner), network, tmp_path)
    assert [done.address(one.contract) for one in plan.creations] == [one.address for one in plan.creations]
    assert done.contracts["Stakes"].tx == sent[2].tx_hash


def test_a_nonce_used_in_between_is_named(chain: Chain, tmp_path: Path) -> None:
    owner = chain.account()
    client = chain.client(owner)
    network = local(chain)
    progress = deploy._progress(client, network, tmp_path, False)
    progress.save(tmp_path)
    client.send(Call(owner.address, b"", "transfer"))
    with pytest.raises(ConfigError, match=r"nonce 0 .* is gone \(next is 1\).*--fresh"):
        deploy.deploy(client, network, tmp_path)
    assert deploy.deploy(client, network, tmp_path, fresh=True).address("Pools")


def test_wrong_chain_and_wrong_files_are_refused(deployed: Deployed, tmp_path: Path) -> None:
    client = deployed.chain.client(deployed.governance)
    with pytest.raises(ConfigError, match="chain 84532"):
        deploy.deploy(client, NetworkConfig.load("base-sepolia"), tmp_path)
    with pytest.raises(ConfigError, match="there is no network mainnet"):
        NetworkConfig.load("mainnet")
    other = local(deployed.chain)
    changed = other.model_copy(update={"suite": other.suite.model_copy(update={"bond": 5 * 10**9, "min_bond": 1})})
    (deployed.folder / deploy.DEPLOYMENT).unlink()
    with pytest.raises(ConfigError, match="changed since"):
        deploy.deploy(client, changed, deployed.folder)

    path = tmp_path / "deployment.json"
    with pytest.raises(ConfigError, match="cannot read the deployment file"):
        Deployment.load(path)
    path.write_text("{}")
    with pytest.raises(ConfigError, match="network"):
        Deployment.load(path)
    document = deployed.deployment.model_dump(mode="json")
    document["contracts"]["Pools"]["abi_sha256"] = "0" * 64
    path.write_text(json.dumps(document))
    with pytest.raises(ConfigError, match="Pools was deployed with another ABI"):
        Deployment.load(path)


def test_a_chain_without_the_suite_is_refused(deployed: Deployed) -> None:
    time.sleep(1.1)  # a local chain's genesis follows from the second of its start
    fresh = Chain().start()
    try:
        with pytest.raises(ConfigError, match="another chain"):
            deployed.deployment.check_chain(fresh.client())
        genesis = "0x" + fresh.client().block(0).hash.hex()  # type: ignore[union-attr]
        with pytest.raises(ConfigError, match="there is no MusterToken at"):
            deployed.deployment.model_copy(update={"genesis": genesis}).check_chain(fresh.client())
    finally:
        fresh.kill()
