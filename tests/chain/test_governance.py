"""Governance on a real chain: the timelock owns the pause, and the state says what it will do."""

import json
from pathlib import Path

import pytest

from chain import deploy
from chain.deployment import Deployment, NetworkConfig
from chain.errors import ContractError
from chain.indexer.follower import Follower
from chain.indexer.projection import Projection
from chain.indexer.records import Proposal
from chain.indexer.state import State
from chain.suite import Suite
from chain.transactions import Call
from protocol.accounts import LocalAccount
from protocol.errors import ConfigError
from tests.conftest import TOKEN, Chain, Deployed

DELAY = NetworkConfig.load("local").suite.timelock_delay
SALT = b"\x07" * 32


def projected(suite: Suite, folder: Path) -> State:
    follower = Follower(suite.client, suite.deployment, folder / "events.sqlite")
    try:
        projection = Projection(follower)
        projection.refresh()
        return projection.state
    finally:
        follower.close()


def proposals(suite: Suite, folder: Path) -> list[Proposal]:
    return list(projected(suite, folder).proposals.values())


def standing(suite: Suite, folder: Path) -> list[str]:
    return [one.status for one in proposals(suite, folder)]


def proposed(suite: Suite, call: Call, folder: Path) -> Proposal:
    """What stands after a call is proposed: it alone."""
    suite.timelock.schedule(call, SALT).send()
    (proposal,) = proposals(suite, folder)
    return proposal


@pytest.fixture
def suite(deployed: Deployed) -> Suite:
    """As governance."""
    return deployed.suite(deployed.governance)


def test_nobody_but_the_timelock_pauses(deployed: Deployed, suite: Suite) -> None:
    assert suite.params.read("owner") == suite.timelock.address
    for account in (deployed.governance, deployed.chain.account()):
        with pytest.raises(ContractError, match="OwnableUnauthorizedAccount"):
            deployed.suite(account).params.call("setPaused", True).send()
    suite.client.simulate(suite.params.call("setPaused", True), suite.timelock.address)


def test_a_change_waits_for_the_delay(deployed: Deployed, suite: Suite, tmp_path: Path) -> None:
    proposal = proposed(suite, suite.params.call("setPaused", True), tmp_path)
    assert (proposal.status, proposal.salt, proposal.ready_at) == ("scheduled", SALT, suite.client.now() + DELAY)
    deployed.chain.later(DELAY - 10)
    with pytest.raises(ContractError, match="TimelockUnexpectedOperationState"):
        suite.timelock.execute(proposal).send()
    deployed.chain.later(10)
    suite.timelock.execute(proposal).send()
    state = projected(suite, tmp_path)
    assert state.proposals["0x" + proposal.id.hex()].status == "done"
    assert state.paused_until == suite.client.now() + 7 * 86400


def test_a_cancelled_change_is_not_made(deployed: Deployed, suite: Suite, tmp_path: Path) -> None:
    change = suite.params.call("setPaused", True)
    proposal = proposed(suite, change, tmp_path)
    suite.timelock.call("cancel", proposal.id).send()
    deployed.chain.later(DELAY)
    with pytest.raises(ContractError, match="TimelockUnexpectedOperationState"):
        suite.timelock.execute(proposal).send()
    assert standing(suite, tmp_path) == ["cancelled"]
    again = proposed(suite, change, tmp_path)
    deployed.chain.later(DELAY)
    suite.timelock.execute(again).send()
    assert standing(suite, tmp_path) == ["done"]


def test_several_calls_of_another_program_are_one_proposal(deployed: Deployed, suite: Suite, tmp_path: Path) -> None:
    to, calls = suite.params.address, [suite.params.call("setPaused", pause).data for pause in (True, False)]
    suite.timelock.call("scheduleBatch", [to, to], [0, 0], calls, bytes(32), bytes(32), DELAY).send()
    deployed.chain.later(DELAY)
    (proposal,) = proposals(suite, tmp_path)
    assert [call.data for call in proposal.calls] == calls
    suite.timelock.execute(proposal).send()
    assert standing(suite, tmp_path) == ["done"]


def test_an_operation_without_calls_stops_nobody_who_follows(deployed: Deployed, suite: Suite, tmp_path: Path) -> None:
    for salt in (SALT, bytes(32)):
        suite.timelock.call("scheduleBatch", [], [], [], bytes(32), salt, DELAY).send()
        suite.timelock.call("cancel", suite.timelock.read("hashOperationBatch", [], [], [], bytes(32), salt)).send()
    assert proposals(suite, tmp_path) == []
    assert proposed(suite, suite.params.call("setPaused", True), tmp_path).status == "scheduled"


def test_a_guardian_of_its_own_pauses_at_once_and_governance_does_not(chain: Chain, tmp_path: Path) -> None:
    governor, guardian, deployer = chain.account(), chain.account(), chain.account()
    network = NetworkConfig.load("local").governed_by(governor.address, guardian.address)
    deployment = deploy.deploy(chain.client(deployer), network, tmp_path / "suite")

    def acting(account: LocalAccount) -> Suite:
        return Suite(chain.client(account), deployment)

    for account in (deployer, governor):
        with pytest.raises(ContractError, match="AccessControlUnauthorizedAccount"):
            acting(account).timelock.call("pause").send()
    with pytest.raises(ContractError, match="AccessControlUnauthorizedAccount"):
        acting(guardian).timelock.schedule(acting(guardian).params.call("setPaused", False), SALT).send()
    acting(guardian).timelock.call("pause").send()
    state = projected(acting(governor), tmp_path)
    assert state.paused_until == chain.client().now() + 7 * 86400
    with pytest.raises(ContractError, match="Paused"):
        acting(guardian).seats.open_seat(guardian.address, [1]).send()
    governed = dict.fromkeys(("proposer", "canceller", "executor"), (governor.address,))
    assert state.roles == governed | {"admin": (deployment.address("Timelock"),), "guardian": (guardian.address,)}


def test_the_timelock_mints_where_the_network_says_so(chain: Chain, tmp_path: Path) -> None:
    assert NetworkConfig.load("base-sepolia").suite.minter == "timelock"
    governor, local = chain.account(), NetworkConfig.load("local")
    network = local.model_copy(update={"suite": local.suite.model_copy(update={"minter": "timelock"})})
    suite = Suite(chain.client(governor), deploy.deploy(chain.client(governor), network, tmp_path / "suite"))
    call = suite.token.mint(governor.address, 5 * TOKEN)
    with pytest.raises(ContractError, match="OwnableUnauthorizedAccount"):
        call.send()
    proposal = proposed(suite, call, tmp_path)
    chain.later(DELAY)
    suite.timelock.execute(proposal).send()
    assert suite.token.balance_of(governor.address) == 5 * TOKEN


@pytest.mark.parametrize("name", ["Timelock", "Stakes", "Seats", "Pools"])
def test_a_deployment_file_with_a_contract_of_other_parameters_is_refused(
    name: str, deployed: Deployed, chain: Chain, tmp_path: Path
) -> None:
    """Or whoever deploys could have a stake slashed by other penalties than the suite states."""
    network = NetworkConfig.load("local")
    other = deploy.deploy(chain.client(deployed.governance), network, tmp_path / "other")
    document = json.loads((deployed.folder / deploy.DEPLOYMENT).read_bytes())
    Deployment.model_validate(document).check_chain(chain.client())
    document["contracts"][name] = other.contracts[name].model_dump()
    with pytest.raises(ConfigError, match=f"{name} at .* was made for other parameters"):
        Deployment.model_validate(document).check_chain(chain.client())
