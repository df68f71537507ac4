"""The keeper's recorder and whoever verifies, against hostile strangers and bad days of the chain: another run, another
chain, reorganisations, two keepers with one key, a lost log, dear gas, an empty purse, records that none can judge."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chain.contracts.site_runs import RunTerms, SiteRuns
from chain.errors import TransactionError
from protocol.errors import ConfigError, MusterError, UnreachableError
from protocol.sites.log import LogEntry
from protocol.sites.recorded import StepRecord
from tests.chain.proxy import Proxy
from tests.conftest import Chain, Deployed, deploy_on
from tests.trainer.sites.chain_world import (
    DELAY,
    KEEPER_STAKE,
    SITE_STAKE,
    SiteChainWorld,
    chain_world,
    on_this_chain,
)
from tests.trainer.sites.test_on_chain import faults, first, started
from tests.trainer.sites.world import KEEPER, SITES, MemoryBucket, make_run
from trainer.sites.exchange import SiteExchange
from trainer.sites.recomputed import boundaries_after, boundary_at
from trainer.sites.run_chain import SEND_SECONDS, chain_of, check_audits
from trainer.sites.step_recorder import StepRecorder
from trainer.sites.verified import claim_of


def recorder(world: SiteChainWorld, home: str = "another") -> StepRecorder:
    """Of a second process with the keeper's key."""
    chain = chain_of(world.config(), world.run, KEEPER)
    return StepRecorder(chain, SiteExchange(world.bucket, world.run), first(), world.home / home)


def steps(world: SiteChainWorld) -> int:
    return world.runs.run_of(world.number).steps


def test_a_record_of_a_place_that_no_log_has_is_judged(shared_suite: Deployed, tmp_path: Path) -> None:
    """A juror that cannot answer acquits: so a keeper must not make it unable to by the numbers that it records."""
    world = started(chain_world(shared_suite, tmp_path, make_run(3)))
    world.until(1)
    exchange = SiteExchange(world.bucket, world.run)
    entry, _ = boundary_at(exchange, boundaries_after(exchange, 0)[0])
    far = entry.model_construct(**{**dict(entry), "number": (1 << 256) - 1})
    world.runs.record(world.number, world.recorder._made[0], far).send()
    [fault] = faults(world, 0)
    assert "a log has 10000000000 at most" in fault


def test_what_a_reorganisation_takes_away_is_recorded_again(deployed: Deployed, tmp_path: Path) -> None:
    world = started(chain_world(deployed, tmp_path, make_run(3)))
    world.until(2)
    deployed.chain.mine(3)
    world.recorder.look()
    world.watches[0].look()
    assert (steps(world), world.watches[0].compared) == (2, 2)
    deployed.chain.rpc("anvil_reorg", 2, [])
    assert steps(world) == 0
    world.recorder.look()
    assert steps(world) == 2
    assert [faults(world, step) for step in range(2)] == [[], []]
    world.watches[0].look()
    assert world.watches[0].status()["differs"] == {}


def test_a_record_that_a_reorganisation_replaces_is_compared_again(deployed: Deployed, tmp_path: Path) -> None:
    world = started(chain_world(deployed, tmp_path, make_run(3)))
    world.until(1)
    deployed.chain.mine(3)
    world.recorder.look()
    world.watches[0].look()
    assert world.watches[0].status()["differs"] == {}
    deployed.chain.rpc("anvil_reorg", 1, [])
    exchange = SiteExchange(world.bucket, world.run)
    entry, _ = boundary_at(exchange, boundaries_after(exchange, 0)[0])
    deployed.chain.mine(2)
    made = world.recorder._made.get(0) or StepRecord(0, "ab" * 32, ())
    world.runs.record(world.number, replace(made, state="ab" * 32), entry).send()
    world.watches[0].look()
    status = world.watches[0].status()
    assert (list(status["differs"]), status["compared"]) == (["0"], 1)


def test_two_keepers_with_one_key_record_each_step_once(
    shared_suite: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = started(chain_world(shared_suite, tmp_path, make_run(3)))
    world.until(2)
    other = recorder(world)
    seen = other.chain.view()
    world.recorder.look()
    with monkeypatch.context() as late:
        late.setattr(other.chain, "view", lambda: seen)  # as it was before the first one recorded
        assert not other.attempt()
    assert "WrongStep" in other.problem
    assert other.attempt(), other.problem
    world.until(3)
    assert other.attempt(), other.problem
    other.noticed(3)
    assert other.attempt(), other.problem
    assert world.recorder.attempt(), world.recorder.problem
    assert steps(world) == 3
    assert [faults(world, step) for step in range(3)] == [[], [], []]


def test_a_keeper_whose_log_is_lost_records_nothing_over_it(shared_suite: Deployed, tmp_path: Path) -> None:
    """What it wrote anew would be held against the stake that stands behind the old log."""
    world = started(chain_world(shared_suite, tmp_path, make_run(3)))
    world.until(2)
    world.recorder.look()
    world.bucket, world.home = MemoryBucket(), tmp_path / "anew"
    world.home.mkdir()
    world.sites.clear()
    world.start_keeper()
    assert not world.recorder.attempt()
    for number in range(3):
        world.start(number)
    world.until(3)
    assert not world.recorder.attempt()
    assert "this log has no such step" in world.recorder.problem
    assert steps(world) == 2


def test_records_are_not_sent_twice_while_gas_is_dear(shared_suite: Deployed, tmp_path: Path) -> None:
    """A wait that is shorter than the time until a transaction is outbid would send it again and again."""
    world = started(chain_world(shared_suite, tmp_path, make_run(3)))
    world.until(1)
    client, waited = world.recorder.chain.runs().client, []
    bump_after = client._sender._bump_after  # type: ignore[union-attr]
    send = client.send

    def timed(call: object, timeout: float = 0.0) -> object:
        waited.append(timeout)
        return send(call, timeout=timeout)  # type: ignore[arg-type]

    client.send = timed  # type: ignore[method-assign, assignment]
    world.recorder.look()
    assert waited == [SEND_SECONDS]
    assert 5 * bump_after < SEND_SECONDS
    sent = world.runs.record(world.number, world.recorder._made.get(0) or StepRecord(0, "ab" * 32, ()), entry_of(world))
    assert sent.pending, "gas is estimated on top of what is on its way: a second one is refused, and costs nothing"


def entry_of(world: SiteChainWorld) -> LogEntry:
    exchange = SiteExchange(world.bucket, world.run)
    return boundary_at(exchange, boundaries_after(exchange, 0)[0])[0]


def test_dear_gas_and_an_empty_purse_cost_no_step(
    deployed: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = started(chain_world(deployed, tmp_path, make_run(3)))
    world.until(1)
    deployed.chain.rpc("anvil_setNextBlockBaseFeePerGas", hex(10**12))
    deployed.chain.mine()
    assert not world.recorder.attempt()
    assert "the limit is" in world.recorder.problem
    deployed.chain.rpc("anvil_setNextBlockBaseFeePerGas", hex(10**9))
    deployed.chain.mine()
    deployed.chain.fund(KEEPER.address, 10**9)
    assert not world.recorder.attempt()
    assert "send some ETH to it" in world.recorder.problem
    world.until(2)
    assert world.keeper.state.step >= 2, "no outer step waits for it"
    deployed.chain.fund(KEEPER.address)
    assert world.recorder.attempt(), world.recorder.problem
    assert steps(world) == world.keeper.state.step


def test_another_chain_of_the_same_number_is_found_out(deployed: Deployed, tmp_path: Path) -> None:
    """A development chain that was begun anew, with the same contracts at the same places."""
    world = chain_world(deployed, tmp_path, make_run(3))
    other = Chain().start()
    try:
        deploy_on(other, tmp_path / "other")
        elsewhere = chain_of(world.config(other.url), world.run, KEEPER)
        with pytest.raises(MusterError):
            elsewhere.view()
    finally:
        other.kill()


def test_an_endpoint_that_forgets_is_not_believed(shared_suite: Deployed, tmp_path: Path) -> None:
    """It names a step's block, and gives no record of it: the watch looks again, and says why."""
    world = started(chain_world(shared_suite, tmp_path, make_run(3)))
    world.until(2)
    world.recorder.look()
    runs = world.runs
    recorded = runs.recorded(world.number, 1)
    assert recorded is not None

    class Forgetful(SiteRuns):
        def recorded(self, run: int, step: int) -> None:
            return None

    forgetful = Forgetful(runs.client, runs.deployment)
    with pytest.raises(UnreachableError, match="lacks the record of outer step 0"):
        claim_of(forgetful, world.number, runs.run_of(world.number), recorded)
    world.watches[0].chain._runs = forgetful
    world.watches[0].look()
    assert world.watches[0].compared == 0
    world.watches[0].chain._runs = runs
    world.watches[0].look()
    assert world.watches[0].compared == 2


def test_logs_of_no_sense_are_said_to_be_that(shared_suite: Deployed, tmp_path: Path) -> None:
    world = started(chain_world(shared_suite, tmp_path, make_run(3)))
    world.until(1)
    world.recorder.look()
    proxy, watch = Proxy(shared_suite.chain.url), world.watches[0]
    try:
        watch.chain = chain_of(world.config(proxy.url), world.run, SITES[0])
        watch.chain.runs()
        nonsense: tuple[Any, ...] = (
            None, [None], [{"address": "0x"}], ["x" * 100_000], [{"data": "0x" + "ff" * 1000}] * 50, {},
        )  # fmt: skip
        for junk in nonsense:
            proxy.rule = lambda request, junk=junk: {"result": junk} if request["method"] == "eth_getLogs" else None  # type: ignore[misc]
            assert not watch.attempt()
            assert "endpoint" in watch.problem, watch.problem
        proxy.rule = lambda request: None
        assert watch.attempt(), watch.problem
    finally:
        proxy.close()
    assert watch.compared == 1


def test_a_run_that_begins_from_nobodys_state_is_refused(shared_suite: Deployed, tmp_path: Path) -> None:
    """Whoever opens it so can never be convicted: every juror would say that it has another model."""
    world = started(chain_world(shared_suite, tmp_path, make_run(3)))
    shared_suite.suite(shared_suite.governance).token.mint(KEEPER.address, KEEPER_STAKE).send()
    terms = RunTerms(
        bytes.fromhex(world.run.digest), b"\x66" * 32, 0, world.run.keeper, SITE_STAKE, KEEPER_STAKE, DELAY
    )
    world.number = world.runs.open(terms).send()
    (tmp_path / "deployment.json").unlink()
    watch = world.watches[0]
    watch.chain = chain_of(world.config(), world.run, SITES[0])
    assert not watch.attempt()
    assert "take no part in this run" in watch.problem
    other = recorder(world)
    assert not other.attempt()
    assert "begins from state 6666" in other.problem


def test_a_keeper_that_would_answer_for_what_it_does_not_look_at_is_refused() -> None:
    with pytest.raises(ConfigError, match="audit 1 parts of 4"):
        check_audits(make_run(4, exchange="shards"))
    check_audits(make_run(4, exchange="shards", audited=4))
    check_audits(make_run(4))


def test_a_transaction_of_unknown_fate_is_looked_for_before_another(
    shared_suite: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = started(chain_world(shared_suite, tmp_path, make_run(3)))
    world.until(1)
    client = world.recorder.chain.runs().client
    send = client.send

    def late(*words: object, **named: object) -> object:
        send(*words, **named)  # type: ignore[arg-type]
        raise TransactionError("not mined within a second", "it may be later", "0x12")

    monkeypatch.setattr(client, "send", late)
    assert not world.recorder.attempt()
    monkeypatch.setattr(client, "send", send)
    assert world.recorder.attempt(), world.recorder.problem
    assert steps(world) == 1
    assert on_this_chain(world.run, shared_suite) == world.run
