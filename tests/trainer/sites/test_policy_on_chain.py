"""A pool's trainer as the keeper of two sites whose run is on a real chain: every outer step is recorded once, whatever
is killed, and the policy step's manifest names the sites that are recorded."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from chain.contracts.site_runs import RunTerms, SiteRuns
from protocol.errors import UnreachableError
from protocol.sites.outer import OuterState
from storage.keys import object_key
from storage.weights.manifest import seal
from tests.chain.game import begin
from tests.conftest import GRAINS, Deployed
from tests.trainer.helpers import small_model
from tests.trainer.sites.test_policy_steps import ADDRESSES, SiteTrainersWorld, sites_at_work
from tests.trainer.sites.world import SITES, TRUSTED
from tests.trainer.world import CONFIG, OWNER, Killed, config_of, start
from trainer.config import TrainerConfig
from trainer.daemon import Trainer
from trainer.exits import EXIT_DONE
from trainer.model.policy import Policy
from trainer.model.sharding import Placement
from trainer.sites import verified
from trainer.sites.chain_config import RunOnChain
from trainer.sites.config import KeeperConfig
from trainer.sites.exchange import SiteExchange
from trainer.sites.first_state import first_state
from trainer.sites.keeper_on_chain import KeeperOnChain
from trainer.sites.model_tensors import model_tensors
from trainer.sites.policy_naming import PolicyNaming, naming_faults, naming_of
from trainer.sites.recomputed import faults_of
from trainer.sites.verified import claim_of

STAKE, KEEPER_STAKE, DELAY = 40 * GRAINS, 200 * GRAINS, 3600
NUMBER = 1


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("model") / "base")


@pytest.fixture
def world(deployed: Deployed, base: Path, tmp_path: Path) -> SiteTrainersWorld:
    """Whose run is number 1 on the chain, of its pool 1, both sites with stake."""
    begin(deployed, tmp_path / "game")
    made = SiteTrainersWorld(base, tmp_path / "trainer", admission=TRUSTED.model_copy(update={"minimum": 2}))
    minting = deployed.suite(deployed.governance).token
    for account in (OWNER, *SITES[:2]):
        deployed.chain.fund(account.address)
        minting.mint(account.address, KEEPER_STAKE).send()
    made.site_runs = deployed.suite(OWNER).site_runs
    terms = RunTerms(
        bytes.fromhex(made.run.digest), first_state(str(base)).digest, 1, OWNER.address, STAKE, KEEPER_STAKE, DELAY
    )
    assert made.site_runs.open(terms).send() == NUMBER
    for site in SITES[:2]:
        deployed.suite(site).site_runs.join(NUMBER, STAKE, site.address).send()
    return made


def trainer(world: SiteTrainersWorld, run: int = NUMBER) -> Trainer:
    return start(world, sites=world.document, sites_chain=RunOnChain(run=run, refresh_seconds=0.05))


def check(world: SiteTrainersWorld) -> None:
    """Three steps, each recorded once, as the log has it and the manifest names its sites."""
    runs: SiteRuns = world.site_runs
    first, view = first_state(str(world.base)), runs.run_of(NUMBER)
    assert view.steps == 3
    for step in range(3):
        recorded = runs.recorded(NUMBER, step)
        assert recorded is not None
        assert faults_of(claim_of(runs, NUMBER, view, recorded), SiteExchange(world.view, world.run), first) == []
        naming = naming_of(step + 1, world.steps, world.view.get, world.run)
        assert naming == PolicyNaming(step + 1, ADDRESSES)
        assert naming_faults(recorded.record, naming) == []
        assert all(one.weight for one in recorded.record.contributions)


def test_every_policy_step_of_the_sites_is_recorded_once(world: SiteTrainersWorld, tmp_path: Path) -> None:
    with sites_at_work(world, tmp_path, {}):
        assert trainer(world).run() == EXIT_DONE
    check(world)
    status = json.loads((world.home / "sites" / "status.json").read_bytes())
    assert (status["chain"]["recorded"], status["chain"]["made"], status["chain"]["problem"]) == (3, 3, "")
    assert status["contradictions"] == {"found": {}, "problem": ""}


def test_a_trainer_that_is_killed_anywhere_records_every_step_once(
    world: SiteTrainersWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first time the chain takes nothing until it is killed."""

    def away(*_: object) -> None:
        raise UnreachableError("nobody answers")

    def at_once(on_chain: KeeperOnChain) -> None:
        on_chain.recorder.stop(30)
        on_chain.contradictions.stop(30)

    with sites_at_work(world, tmp_path, {}):
        with monkeypatch.context() as killed:
            killed.setattr(KeeperOnChain, "finish", at_once)  # a kill lets nobody finish
            with monkeypatch.context() as gone:
                gone.setattr(SiteRuns, "record", away)
                world.fuse, made = 40, trainer(world)
                with pytest.raises(Killed):
                    made.run()
                group: Any = made.group
                assert group.keeper.state.step > 0
                assert world.site_runs.run_of(NUMBER).steps == 0
            world.fuse = 20
            with pytest.raises(Killed):
                trainer(world).run()
        world.fuse = None
        assert trainer(world).run() == EXIT_DONE
    check(world)


def test_what_a_manifest_names_otherwise_is_a_fault(world: SiteTrainersWorld, tmp_path: Path) -> None:
    with sites_at_work(world, tmp_path, {}):
        assert trainer(world).run() == EXIT_DONE
    recorded = world.site_runs.recorded(NUMBER, 1)
    naming = naming_of(2, world.steps, world.view.get, world.run)
    assert naming is not None
    [fault] = naming_faults(recorded.record, PolicyNaming(2, ADDRESSES[:1]))
    assert fault.startswith(f"the manifest of policy step 2 names the sites {ADDRESSES[0]}, recorded are")
    # what another owner signed, or another run's, or nobody can have, says nothing
    assert naming_of(2, world.steps, world.view.get, world.run.model_copy(update={"keeper": ADDRESSES[0]})) is None
    assert naming_of(2, world.steps, world.view.get, world.run.model_copy(update={"name": "other"})) is None
    del world.objects[object_key("manifests", world.steps[2])]
    assert naming_of(2, world.steps, world.view.get, world.run) is None
    assert naming_of(9, world.steps, world.view.get, world.run) is None


def test_whoever_verifies_compares_the_pools_manifests(
    world: SiteTrainersWorld, deployed: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sites_at_work(world, tmp_path, {}):
        assert trainer(world).run() == EXIT_DONE
    deployed.deployment.save(tmp_path / "deployment.json")
    place = {"deployment": tmp_path / "deployment.json", "rpc": (deployed.chain.url,), "run": NUMBER}
    config = KeeperConfig.model_validate(
        {
            "home": tmp_path, "run": world.document, "model": str(world.base), "chain": place,
            "key": {"keystore": tmp_path}, "s3": config_of(world.base, tmp_path).s3.model_dump(),
        }
    )  # fmt: skip
    monkeypatch.setattr(verified, "Bucket", lambda _: world.view)
    monkeypatch.setattr(verified, "check_place", lambda *_: None)  # this world's pool is on no chain
    published = list(world.steps)
    monkeypatch.setattr(verified, "published_manifests", lambda *_: published)
    found = verified.verified(config, 1)
    assert (found.faults, found.policy_step) == ([], 2)

    manifest = world.manifest(2)
    assert manifest.made_by is not None
    lie = manifest.model_copy(update={"made_by": manifest.made_by.model_copy(update={"sites": ADDRESSES[:1]})})
    published[2] = lie.digest
    world.objects[object_key("manifests", lie.digest)] = seal(lie, OWNER)
    found = verified.verified(config, 1)
    assert found.policy_step == 2
    [fault] = found.faults
    named = f"names the sites {ADDRESSES[0]}, recorded are {ADDRESSES[0]}, {ADDRESSES[1]}"
    assert fault == f"the manifest of policy step 2 {named}"

    def away(*_: object) -> list[bytes]:
        raise UnreachableError("no logs")

    monkeypatch.setattr(verified, "published_manifests", away)
    found = verified.verified(config, 1)
    assert (found.faults, found.policy_step) == ([], None), "a step can be judged without"


def test_a_trainer_finds_that_the_run_on_chain_is_another_one(world: SiteTrainersWorld, deployed: Deployed) -> None:
    made: Any = trainer(world, run=2)
    recorder = made.group._on_chain.recorder
    assert not recorder.attempt()
    assert "there is no run 2 on chain" in recorder.problem
    document = bytes.fromhex(world.run.model_copy(update={"name": "other"}).digest)
    terms = RunTerms(document, b"\x02" * 32, 1, OWNER.address, STAKE, 100 * GRAINS, DELAY)
    deployed.suite(deployed.governance).token.mint(OWNER.address, KEEPER_STAKE).send()
    assert world.site_runs.open(terms).send() == 2
    assert not recorder.attempt()
    assert "run 2 on chain has the document" in recorder.problem
    made.group.end(0)


def test_a_run_that_begins_elsewhere_is_not_recorded(world: SiteTrainersWorld, deployed: Deployed) -> None:
    """By another first state every step would look wrong, and cost the keeper its stake."""
    deployed.suite(deployed.governance).token.mint(OWNER.address, KEEPER_STAKE).send()
    terms = RunTerms(bytes.fromhex(world.run.digest), b"\x02" * 32, 1, OWNER.address, STAKE, 100 * GRAINS, DELAY)
    assert world.site_runs.open(terms).send() == 2
    made: Any = trainer(world, run=2)
    recorder = made.group._on_chain.recorder
    assert not recorder.attempt()
    assert "begins from state 0202" in recorder.problem
    made.group.end(0)


def test_a_chain_without_sites_is_refused(tmp_path: Path) -> None:
    values = config_of(tmp_path, tmp_path).model_dump() | {"sites_chain": {"run": 1}}
    with pytest.raises(ValidationError, match="needs `sites`"):
        TrainerConfig.model_validate(values)


def test_the_first_state_is_the_same_for_trainer_and_verifier(base: Path) -> None:
    for dtype in ("float32", "bfloat16"):
        policy = Policy(base, dtype, Placement())
        assert OuterState.start(model_tensors(policy.model)).digest == first_state(str(base)).digest
    assert CONFIG.model.dtype in ("float32", "bfloat16")
