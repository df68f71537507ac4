"""An operator without ether or token: its node joins and leaves through the pool's service."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chain.indexer.follower import Follower
from chain.indexer.projection import Projection
from chain.indexer.state import Standing
from chain.suite import Suite
from cli.run.node import leave_by_service
from cli.run.steps import UpDo, next_node_step
from cli.run.up import NodeUp, open_up_profile
from cli.session import open_session
from orchestrator.chain import PoolView
from orchestrator.db import Database, default_url
from orchestrator.sponsor import Sponsor
from protocol.accounts import LocalAccount
from protocol.api.work import JoinRequest, LeaveRequest, MembershipResponse
from protocol.errors import ConfigError
from tests.cli.pool_files import StubService
from tests.conftest import TOKEN, Deployed


@dataclass
class Lender:
    """A service that lends `most` stakes; `client` stands for the client of its interface."""

    suite: Suite
    view: PoolView
    sponsor: Sponsor

    def client(self, _url: str, node: LocalAccount, _pool: object) -> Any:
        def asked(ask: Callable[[str, Any], MembershipResponse]) -> Callable[[Any], MembershipResponse]:
            def answer(wish: JoinRequest | LeaveRequest) -> MembershipResponse:
                self.view.refresh()
                found = ask(str(node.address), wish)
                self.sponsor.turn()
                return found

            return answer

        return SimpleNamespace(join=asked(self.sponsor.join), leave=asked(self.sponsor.leave), close=lambda: None)


@pytest.fixture
def lender(
    home: Path,
    pool: int,
    suite: Suite,
    shared_suite: Deployed,
    service: StubService,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Lender:
    key = shared_suite.chain.account()
    suite.court.set_service(pool, key.address).send()
    shared_suite.suite(shared_suite.governance).token.mint(key.address, 1000 * TOKEN).send()
    follower = Follower(suite.client, suite.deployment, tmp_path / "service.sqlite")
    view = PoolView(Projection(follower), pool, 0)
    view.refresh()
    made = Lender(suite, view, Sponsor(Database(default_url(tmp_path)), view, shared_suite.suite(key), 1, 1))
    monkeypatch.setattr("cli.run.up.OrchestratorClient", made.client)
    monkeypatch.setattr("cli.run.up._FUNDS_SECONDS", 0.0)
    assert service.access is not None
    service.access = service.access.model_copy(update={"lends": True})
    return made


def test_a_sponsored_node_joins_and_leaves_without_ether_or_token(lender: Lender, service: StubService) -> None:
    way = NodeUp(open_up_profile("operator", service.url, None), yes=True)
    taken = list[UpDo]()
    while (step := next_node_step(facts := way.facts())).do is not UpDo.RUN:
        taken.append(step.do)
        way.take(facts, step)
    assert set(taken) == {UpDo.MAKE_KEYS, UpDo.SPONSOR}
    assert (facts.registered_to, facts.standing) == (facts.operator, Standing.MEMBER)
    client = way.session.client
    assert [client.balance(one) for one in (facts.operator, facts.node)] == [0, 0]
    assert way.session.suite.token.balance_of(facts.operator) == 0

    by: Any = SimpleNamespace(yes=True, json=True)
    profile = way.profile
    with pytest.raises(ConfigError, match="is not the key of node"):
        leave_by_service(
            open_session(profile.deployment, profile.rpc, profile.key.keystore, profile.key.password_file),
            facts.node,
            by,
        )
    node = way.node_key
    leave_by_service(open_session(profile.deployment, profile.rpc, node.keystore, node.password_file), facts.node, by)
    assert way.facts().standing is Standing.LEFT


def test_why_the_service_cannot_lend_now_is_said_once(
    lender: Lender, service: StubService, capsys: pytest.CaptureFixture[str]
) -> None:
    lender.sponsor._a_day = 0
    way = NodeUp(open_up_profile("operator", service.url, None), yes=True)
    for _ in range(4):
        way.take(facts := way.facts(), next_node_step(facts))
    shown = capsys.readouterr().out
    assert shown.count("0 stakes were lent in the last 24 hours") == 1
    assert f"Or send {way.facts().operator} what it takes" in shown


def test_who_asks_for_a_stake_or_whose_service_lends_none_or_is_gone_stakes_its_own(
    lender: Lender, service: StubService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(wanted: int = 0) -> UpDo:
        return next_node_step(NodeUp(open_up_profile("operator", service.url, None), wanted, yes=True).facts()).do

    way = NodeUp(open_up_profile("operator", service.url, None), yes=True)
    way.take(facts := way.facts(), next_node_step(facts))
    assert [step(), step(wanted=500 * TOKEN)] == [UpDo.SPONSOR, UpDo.ETHER]
    assert service.access is not None
    service.access = service.access.model_copy(update={"lends": False})
    assert step() is UpDo.ETHER
    access, service.access = service.access.model_copy(update={"lends": True}), None
    assert step() is UpDo.ETHER

    def come_back(_: float) -> None:
        service.access = access

    monkeypatch.setattr("cli.run.up.time.sleep", come_back)
    monkeypatch.setattr("cli.run.up.LocalFaucet.of", lambda suite: None)
    way = NodeUp(open_up_profile("operator", service.url, None), yes=True)
    way.take(facts := way.facts(), next_node_step(facts))
    assert next_node_step(way.facts()).do is UpDo.SPONSOR, "it does not wait for ether once the service lends"
