"""Sites and keeper with a real chain: who has no stake is not taken in, every outer step is recorded once whatever is
killed when, and what is recorded otherwise than it was made is found by sites and by anybody."""

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from benchmarks.site_letters import LetterTable
from chain.errors import ContractError
from cli.main import app
from protocol.encoding import canonical_json
from protocol.errors import ConfigError, UnreachableError
from protocol.sites.outer import OuterState
from protocol.sites.recorded import ONE, StepRecord
from storage.keys import MissingObjectError
from tests.conftest import Deployed
from tests.trainer.sites.chain_world import SiteChainWorld, chain_world, on_this_chain
from tests.trainer.sites.world import KEEPER, SITES, make_run
from trainer.sites import verified
from trainer.sites.config import member_config
from trainer.sites.exchange import SiteExchange
from trainer.sites.recomputed import boundaries_after, boundary_at, faults_of
from trainer.sites.run_chain import chain_of
from trainer.sites.verified import claim_of


def first() -> OuterState:
    return OuterState.start(LetterTable().weights())


def faults(world: SiteChainWorld, step: int) -> list[str]:
    """As `muster site verify` finds them."""
    runs, recorded = world.runs, world.runs.recorded(world.number, step)
    assert recorded is not None
    claim = claim_of(runs, world.number, runs.run_of(world.number), recorded)
    return faults_of(claim, SiteExchange(world.bucket, world.run), first())


def started(world: SiteChainWorld, sites: int = 3) -> SiteChainWorld:
    world.recorder.look()
    for number in range(sites):
        world.start(number)
    return world


def test_every_step_is_recorded_and_follows_from_what_was_published(shared_suite: Deployed, tmp_path: Path) -> None:
    world = started(chain_world(shared_suite, tmp_path, make_run(3)))
    world.until(3)
    world.recorder.look()
    view = world.runs.run_of(world.number)
    assert view.steps == 3
    recorded = world.runs.recorded(world.number, 2)
    assert recorded is not None
    assert recorded.record.state == world.keeper.state.digest.hex()
    weights = [one.weight for one in recorded.record.contributions]
    assert len(weights) == 3
    assert all(0 < weight <= ONE // 3 for weight in weights)
    assert [faults(world, step) for step in range(3)] == [[], [], []]
    world.watches[0].look()
    status = world.sites[0].status()["chain"]
    assert (status["compared"], status["differs"], status["staked"]) == (3, {}, True)
    assert world.keeper.status()["chain"]["recorded"] == 3
    # looking again sends nothing
    nonce = shared_suite.chain.client().ask("nonce", lambda eth: eth.get_transaction_count(KEEPER.address))
    world.recorder.look()
    assert shared_suite.chain.client().ask("nonce", lambda eth: eth.get_transaction_count(KEEPER.address)) == nonce


def test_who_has_no_stake_is_not_taken_in(shared_suite: Deployed, tmp_path: Path) -> None:
    world = started(chain_world(shared_suite, tmp_path, make_run(4)), 4)
    world.until_members(3)
    world.until_step(2)
    assert SITES[3].address not in world.keeper.book.schedule.members | world.keeper.book.schedule.waiting
    assert world.recorder.status()["without_stake"] == [SITES[3].address]
    world.join(3)
    world.recorder.look()
    world.until_members(4)


def test_a_keeper_that_is_killed_between_step_and_record_records_it_once(
    shared_suite: Deployed, tmp_path: Path
) -> None:
    world = started(chain_world(shared_suite, tmp_path, make_run(3)))
    world.until(2)
    assert world.runs.run_of(world.number).steps == 0
    world.start_keeper()  # nothing but disk, log and chain is left
    world.recorder.look()
    assert world.runs.run_of(world.number).steps == 2
    assert [faults(world, step) for step in range(2)] == [[], []]
    world.until(3)
    world.recorder.look()
    world.start_keeper()
    world.recorder.look()
    assert world.runs.run_of(world.number).steps == 3


def test_a_keeper_that_is_killed_while_it_records_records_it_once(
    shared_suite: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = started(chain_world(shared_suite, tmp_path, make_run(3)))
    world.until(2)
    client = world.recorder.chain.runs().client
    send, sent = client.send, []

    def lost(*words: object, **named: object) -> object:
        sent.append(send(*words, **named))  # type: ignore[arg-type]
        raise UnreachableError("the answer did not come")

    monkeypatch.setattr(client, "send", lost)
    assert not world.recorder.attempt()
    assert "the answer did not come" in world.recorder.status()["problem"]
    world.start_keeper()
    world.recorder.look()
    assert len(sent) == 1
    assert world.runs.run_of(world.number).steps == 2
    assert [faults(world, step) for step in range(2)] == [[], []]


def test_the_chain_is_not_waited_for(shared_suite: Deployed, tmp_path: Path) -> None:
    world = started(chain_world(shared_suite, tmp_path, make_run(3)))
    dead = chain_of(world.config("http://127.0.0.1:9"), world.run, KEEPER)
    world.recorder.chain = dead
    world.recorder.start()
    world.until(2)
    world.recorder.stop(30)
    assert "127.0.0.1:9" in world.recorder.status()["problem"]
    assert world.keeper.state.step >= 2
    # a restart without the chain goes on with those who had stake when it was last reached
    world.start_keeper()
    world.recorder.chain = dead
    assert world.recorder.may_take_part(SITES[0].address)
    world.recorder.chain = chain_of(world.config(), world.run, KEEPER)
    world.recorder.finish(30)
    assert world.runs.run_of(world.number).steps == world.keeper.state.step


def test_what_is_recorded_otherwise_is_found(shared_suite: Deployed, tmp_path: Path) -> None:
    world = started(chain_world(shared_suite, tmp_path, make_run(3)))
    world.until(3)
    exchange = SiteExchange(world.bucket, world.run)
    places = boundaries_after(exchange, 0)

    def recorded_as(step: int, change: str) -> None:
        entry, _ = boundary_at(exchange, places[step])
        made = world.recorder._made[step]
        one, *rest = made.contributions
        lies = {
            "state": replace(made, state="ab" * 32),
            "weight": replace(made, contributions=(replace(one, weight=one.weight - 1), *rest)),
            "document": replace(made, contributions=(replace(one, document="cd" * 32), *rest)),
        }
        world.runs.record(world.number, lies[change], entry).send()

    for step, change in enumerate(("state", "weight", "document")):
        recorded_as(step, change)
        assert faults(world, step), change
    assert "led to state" in faults(world, 0)[0]
    assert any("starts from state" in one for one in faults(world, 1))
    assert any("has the weight" in one for one in faults(world, 1))
    world.watches[1].look()
    differs = world.sites[1].status()["chain"]["differs"]
    assert sorted(differs) == ["0", "1", "2"]
    assert "contributed" in differs["2"][0]


def test_a_record_that_names_another_entry_is_found_and_costs_the_keeper(
    shared_suite: Deployed, tmp_path: Path
) -> None:
    world = started(chain_world(shared_suite, tmp_path, make_run(3)))
    world.until(1)
    exchange = SiteExchange(world.bucket, world.run)
    entry, _ = boundary_at(exchange, boundaries_after(exchange, 0)[0])
    other = entry.model_copy(update={"time": entry.time + 1})
    world.runs.record(world.number, world.recorder._made[0], other).send()
    assert "the log has another entry" in faults(world, 0)[0]
    recorded = world.runs.recorded(world.number, 0)
    assert recorded is not None
    stored = world.bucket.look(f"sites/{world.run.digest}/log/{entry.number:010d}", 1 << 16)
    assert stored is not None
    from protocol.sites.log import SignedEntry

    signature = bytes.fromhex(SignedEntry.model_validate_json(stored).signature[2:])
    prover = shared_suite.suite(shared_suite.chain.account()).site_runs
    prover.accuse_record(world.number, recorded, entry, signature).send()
    assert world.runs.run_of(world.number).ejected
    with pytest.raises(ContractError, match="AlreadyEjected"):
        prover.accuse_record(world.number, recorded, entry, signature).send()


def test_what_is_gone_is_no_fault(shared_suite: Deployed, tmp_path: Path) -> None:
    world = started(chain_world(shared_suite, tmp_path, make_run(3)))
    world.until(1)
    world.recorder.look()
    recorded = world.runs.recorded(world.number, 0)
    assert recorded is not None
    del world.bucket.objects[f"contributions/{recorded.record.contributions[0].document}"]  # type: ignore[attr-defined]
    with pytest.raises(MissingObjectError):
        faults(world, 0)


def test_another_run_or_chain_is_refused(shared_suite: Deployed, tmp_path: Path) -> None:
    world = chain_world(shared_suite, tmp_path, make_run(3))
    with pytest.raises(ConfigError, match="the deployment is on chain"):
        chain_of(world.config(), make_run(3), KEEPER)
    renamed = on_this_chain(make_run(3, name="another"), shared_suite)
    with pytest.raises(ConfigError, match="on chain has the document"):
        chain_of(world.config(), renamed, KEEPER).view()
    world.number = 999
    with pytest.raises(ConfigError, match="there is no run 999"):
        chain_of(world.config(), world.run, KEEPER).view()


def test_weights_are_shares_rounded_down() -> None:
    from protocol.sites.recorded import RecordedContribution, differences, weight_of

    assert weight_of(Fraction(1, 3)) == 333_333_333
    assert weight_of(Fraction(1)) == ONE
    made = StepRecord(4, "aa" * 32, (RecordedContribution("0x1", "bb" * 32, 5),))
    assert differences(made, made) == []
    assert differences(replace(made, step=5), made) == ["it is outer step 5, not 4"]
    nobody = replace(made, contributions=())
    assert differences(nobody, made) == ["0x1 contributed, and is not recorded"]
    assert differences(made, nobody) == ["0x1 is recorded, and did not contribute"]


def test_anybody_verifies_from_a_configuration_without_a_key(
    shared_suite: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = started(chain_world(shared_suite, tmp_path, make_run(3)))
    world.until(2)
    world.recorder.look()
    (tmp_path / "run.json").write_bytes(canonical_json(world.run.model_dump(mode="json")))
    configuration = {
        "home": str(tmp_path / "nowhere"), "run": str(tmp_path / "run.json"), "model": "letters",
        "key": {"keystore": str(tmp_path / "no.key")},
        "s3": {"endpoint": "http://127.0.0.1:9", "bucket": "muster", "credentials": str(tmp_path / "none.json")},
        "chain": json.loads(world.config().model_dump_json()),
    }  # fmt: skip
    keeper, site = tmp_path / "keeper.json", tmp_path / "site.json"
    keeper.write_text(json.dumps(configuration))
    site.write_text(json.dumps({**configuration, "imitation": {"data": "none.jsonl"}}))
    monkeypatch.setattr(verified, "Bucket", lambda _: world.bucket)
    monkeypatch.setattr(verified, "first_state", lambda _: first())

    def said(config: Path, step: int) -> Result:
        return CliRunner().invoke(app, ["site", "verify", str(step), "--config", str(config), "--json"])

    for config in (keeper, site):
        answer = said(config, 1)
        assert answer.exit_code == 0, answer.output
        document = json.loads(answer.stdout)
        assert (document["run"], document["step"], document["follows"]) == (world.number, 1, True)
        assert len(document["contributions"]) == 3
    world.until(3)
    exchange = SiteExchange(world.bucket, world.run)
    entry, _ = boundary_at(exchange, boundaries_after(exchange, 2)[2])
    world.runs.record(world.number, replace(world.recorder._made[2], state="ab" * 32), entry).send()
    wrong = said(keeper, 2)
    assert wrong.exit_code == 1
    assert "led to state" in json.loads(wrong.stdout)["faults"][0]
    monkeypatch.setattr(verified, "first_state", lambda _: replace(first(), step=7))
    for step in (0, 1):
        with pytest.raises(ConfigError, match="name the run's own base model"):
            verified.verified(member_config(keeper), step)
    assert isinstance(said(keeper, 9).exception, ConfigError)
