"""`muster node up` and `validator up` from an empty home on a real chain, interrupted after every step."""

import hashlib
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli.profile import find_profile, load_profile, profile_path
from cli.run.process import UpProcess
from cli.run.steps import UpDo, next_node_step, next_validator_step
from cli.run.up import NodeUp, ValidatorUp, check_machine, open_up_profile
from cli.session import ask_access, check_access, open_session
from orchestrator.main import pool_access
from protocol.errors import ConfigError, IntegrityError
from runtime.diagnose import ServiceFacts
from sandbox.launch import Probed
from tests.cli.muster import Muster
from tests.cli.pool_files import CONFIG, StubService
from tests.conftest import TOKEN, Deployed


@pytest.fixture
def muster(home: Path) -> Muster:
    """With nothing but a home."""
    return Muster(home)


def test_up_takes_every_step_once_whenever_it_is_interrupted(
    home: Path, service: StubService, pool: int, shared_suite: Deployed
) -> None:
    taken = []
    for _ in range(20):  # every round is a new process to whom only files and chain are known
        way = NodeUp(open_up_profile("operator", service.url, None), yes=True)
        facts = way.facts()
        step = next_node_step(facts)
        taken.append(step.do)
        if step.do is UpDo.RUN:
            break
        way.take(facts, step)
    assert taken == [
        UpDo.MAKE_KEYS, UpDo.ETHER, UpDo.TOKENS, UpDo.REGISTER, UpDo.JOIN, UpDo.RUN,
    ]  # fmt: skip
    state = way.session.state()
    assert state.nodes[facts.node].operator == facts.operator
    assert state.nodes[facts.node].stake == 200 * TOKEN
    assert state.accounts[pool, facts.node].member
    profile = find_profile("operator")
    assert profile is not None
    assert (profile.pool, profile.service) == (pool, service.url)
    assert profile.key.keystore.stat().st_mode & 0o077 == 0
    assert way.pool_config() == CONFIG


def test_a_validator_bonds_only_once_its_process_can_judge(
    home: Path, service: StubService, pool: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes: list[UpProcess] = []

    def start(way: ValidatorUp) -> None:
        way.process = UpProcess("validator", way.profile, Path("unused"))
        processes.append(way.process)

    monkeypatch.setattr(ValidatorUp, "start", start)
    monkeypatch.setattr("cli.run.up._WARM_SECONDS", 0.0)
    way = ValidatorUp(open_up_profile("validator", service.url, None), yes=True)
    taken: list[UpDo] = []
    while (step := next_validator_step(facts := way.facts())).do is not UpDo.RUN:
        taken.append(step.do)
        way.take(facts, step)
        if taken.count(UpDo.WARM) == 3:
            assert not facts.seated
            way.ready.parent.mkdir(parents=True, exist_ok=True)
            way.ready.touch()
    assert list(dict.fromkeys(taken)) == [
        UpDo.MAKE_KEYS, UpDo.ETHER, UpDo.TOKENS, UpDo.WARM, UpDo.BOND,
    ]  # fmt: skip
    assert len(processes) == 1
    (seat,) = [one for one in way.session.state().seats.values() if one.owner == facts.owner]
    assert (seat.groups, seat.voter) == ((pool,), facts.voters[0][0])
    again = ValidatorUp(open_up_profile("validator", None, None), yes=True)
    assert next_validator_step(again.facts()).do is UpDo.WARM, "after a restart nothing is bonded twice"


def test_what_a_bond_risks_is_shown_before_it_is_asked_for(
    home: Path, service: StubService, pool: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("cli.run.up.confirm", asked.append)
    way = ValidatorUp(open_up_profile("validator", service.url, None))
    for expected in (UpDo.MAKE_KEYS, UpDo.ASK):
        step = next_validator_step(facts := way.facts())
        assert step.do is expected
        way.take(facts, step)
    assert asked == ["Bond under these terms, once the process can judge?"]
    said = capsys.readouterr().out
    risks = {"a vote against the outcome": "0.1", "a vote that is missing": "0.2", "a planted file let pass": "20"}
    for what, tokens in risks.items():
        assert re.search(rf"{what} +costs {tokens} tokens", said), said
    assert next_validator_step(way.facts()).do is not UpDo.ASK


def test_afterwards_every_command_knows_keys_pool_and_chain(muster: Muster, service: StubService, pool: int) -> None:
    way = NodeUp(open_up_profile("operator", service.url, None), yes=True)
    facts = way.prepare()
    view = muster.ok("node", "status", "--json").json
    assert (view["node"], view["accounts"][0]["pool"]) == (facts.node, pool)
    assert muster.ok("keys", "show", "--json").json["address"] == facts.operator
    assert "has 0 tokens and needs 0.5" in muster.refused("node", "join", "--stake", "0.5", "--yes")


def test_what_the_chain_does_not_bear_out_is_refused(
    home: Path, service: StubService, pool: int, shared_suite: Deployed
) -> None:
    assert service.access is not None
    honest = service.access
    lies: dict[str, dict[str, Any]] = {
        "another configuration": {"config_hash": hashlib.sha256(b"x").hexdigest()},
        "there is no pool 999": {"pool": 999},
        "was never announced": {"pool": pool},
    }
    for words, lie in lies.items():
        service.access = honest.model_copy(update=lie)
        access = ask_access(service.url)
        session = open_session(shared_suite.folder, shared_suite.chain.url)
        state = session.state()
        if words == "was never announced":
            state.pools[pool].service_url = ""
        with pytest.raises(IntegrityError, match=words):
            check_access(access, state)
        session.client.close()
    service.access = honest.model_copy(update={"deployment": "{}"})
    with pytest.raises(ConfigError, match="the deployment that"):
        ask_access(service.url)


def test_a_profile_of_another_role_or_pool_is_named(
    muster: Muster, home: Path, service: StubService, pool: int
) -> None:
    assert "pass --pool URL" in muster.refused("node", "up", "--yes")
    muster.ok("init", "operator", "--pool", service.url)
    assert "is for" in muster.refused("node", "up", "--pool", "https://other.example", "--yes")
    assert "--force" in muster.refused("init", "operator", "--pool", service.url)
    path = profile_path("operator")
    assert load_profile(path).home == home / ".local" / "share" / "muster" / "operator"
    path.write_text(path.read_text().replace('role = "operator"', 'role = "owner"'))
    assert "profile of an owner" in muster.refused("node", "up", "--yes")
    path.write_text("role = 7\n")
    assert f"{path}: `role`" in muster.refused("keys", "show")


def test_a_profile_of_a_chain_that_was_started_anew_has_a_cure(
    muster: Muster, home: Path, service: StubService, pool: int
) -> None:
    muster.ok("init", "operator", "--pool", service.url)
    deployment = profile_path("operator").parent / "deployment.json"
    document = json.loads(deployment.read_text())
    deployment.write_text(json.dumps(document | {"genesis": "0x" + "ab" * 32}))
    stale = muster.refused("node", "up", "--dry-run")
    assert "another chain with id 31337" in stale
    assert "`muster init ROLE --pool URL --force` replaces the deployment" in stale
    muster.ok("init", "operator", "--pool", service.url, "--force")
    assert "next: make keys" in muster.ok("node", "up", "--dry-run").out


def test_a_machine_that_cannot_work_is_refused_before_money_moves(
    muster: Muster, home: Path, service: StubService, pool: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    muster.ok("init", "operator", "--pool", service.url)
    path = profile_path("operator")
    profile = load_profile(path)
    monkeypatch.setattr("cli.run.up.driver_answers", bool)
    check_machine(profile)
    on_gpu = profile.model_copy(update={"engine": profile.engine.model_copy(update={"device": "cuda"})})
    for role in (NodeUp(on_gpu, yes=True), ValidatorUp(on_gpu.model_copy(update={"voters": (profile.key,)}), yes=True)):
        with pytest.raises(ConfigError, match="no NVIDIA driver answers"):
            role.run(dry_run=False, as_json=False)
    with monkeypatch.context() as patched:
        patched.setattr("sandbox.launch.try_mode", lambda mode, image: Probed(f"no {mode.value}"))
        in_container = profile.model_copy(update={"isolation": "container"})
        with pytest.raises(ConfigError, match=r"'container' does not work here \(podman: no podman; docker"):
            NodeUp(in_container, yes=True).run(dry_run=False, as_json=False)
    monkeypatch.setattr("cli.run.up.look_at_service", lambda *_, **about: ServiceFacts(clock_offset=-42.0))
    with pytest.raises(ConfigError, match="this machine's clock is -42 s off the service's"):
        NodeUp(profile, yes=True).run(dry_run=False, as_json=False)
    assert not profile.key.keystore.exists(), "nothing was made, nothing was paid"


def test_an_up_that_is_interrupted_before_it_works_says_how_it_goes_on(
    home: Path, service: StubService, pool: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    way = NodeUp(open_up_profile("operator", service.url, None), yes=True)

    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(way, "prepare", interrupt)
    with pytest.raises(KeyboardInterrupt):
        way.run(dry_run=False, as_json=False)
    assert capsys.readouterr().err == "stopped; the same command continues where it was\n"


def test_a_service_tells_public_urls_and_never_its_own(shared_suite: Deployed) -> None:
    deployment = open_session(shared_suite.folder, shared_suite.chain.url).deployment
    secret: Any = SimpleNamespace(pool=1, rpc=("https://provider.example/SECRET",), public_rpc=(), most_loans=1)
    access = pool_access(secret, deployment, CONFIG)
    assert "SECRET" not in access.model_dump_json()
    assert access.lends
    silent = deployment.model_copy(update={"services": {}})
    assert pool_access(secret, silent, CONFIG).rpc == ["http://127.0.0.1:8545"]
    announced = deployment.model_copy(update={"services": {"rpc": "http://127.0.0.1:31000"}})
    assert pool_access(secret, announced, CONFIG).rpc == ["http://127.0.0.1:31000"]
