"""Where the keeper says what a step trains on: what a trainer, its keeper and a site do when something is not as it
should be, each file once all the same."""

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from protocol.encoding import canonical_json, sha256_hex
from protocol.errors import ConfigError, IntegrityError, UnreachableError
from protocol.sites.dealing import MAX_ITEMS
from protocol.sites.log import Noted
from protocol.sites.run import SitesRun
from tests.trainer.sites.world import SITES, TRUSTED, MemoryBucket, SitesWorld, make_run
from tests.trainer.world import CONFIG
from trainer.checkpoint import read_checkpoint
from trainer.data import StepFiles
from trainer.model.sharding import Placement
from trainer.sites.home import claim_home
from trainer.sites.policy_steps import SitesGroup, SiteSteps
from trainer.sites.pool_run import check_run_of
from trainer.sites.settled import SettledStep
from trainer.waiting import Waiting

A, B = (str(one.address) for one in SITES[:2])


def run_of_two() -> SitesRun:
    made = make_run(2, admission=TRUSTED, training_seconds=1000, window_seconds=1000, inner_steps=1)
    return made.model_copy(update={"work": "given"})


def working(home: Path) -> SitesWorld:
    """Two members, and no work yet."""
    world = SitesWorld(MemoryBucket(), run_of_two(), home)
    for number in (0, 1):
        world.start(number)
    while world.keeper.book.schedule.members != {A, B}:
        world.turn()
        if len(world.keeper.book.schedule.members | world.keeper.book.schedule.waiting) == 2:
            world.keeper.give([f"{number:064x}" for number in range(2)])
    return world


def group_at(home: Path, outer: int, run: SitesRun) -> SitesGroup:
    """Of a keeper that stands at an outer state, without a policy."""
    state = SimpleNamespace(step=outer)
    keeper: Any = SimpleNamespace(start=lambda: None, status=dict, state=state, run=run)
    policy: Any = None
    return SitesGroup(keeper, policy, Placement(), home)


def test_nobody_signs_before_it_is_said_what_a_step_trains_on(tmp_path: Path) -> None:
    world = SitesWorld(MemoryBucket(), run_of_two(), tmp_path)
    world.start(0)
    while not world.keeper.book.schedule.members:
        world.turn()
    signed = Noted(site=A, note=9, what="sign", digest="ab" * 32)
    with pytest.raises(IntegrityError, match="signed before"):
        world.keeper.book.next(signed)
    world.keeper.give(["cd" * 32])
    assert world.keeper.book.next(signed).documents == {A: "ab" * 32}


def test_a_keeper_keeps_nothing_of_an_attempt_that_is_over(tmp_path: Path) -> None:
    world = working(tmp_path)
    while not world.keeper._handed._gradients:
        world.keeper.turn()
        for number, site in world.sites.items():
            if number == 0 or world.keeper.book.schedule.phase.value == "collect":
                site.turn()
    attempt = world.keeper.book.schedule.attempt
    world.keeper._waited = lambda: 1e9  # type: ignore[method-assign]
    while world.keeper.book.schedule.attempt == attempt:
        world.keeper.turn()
    del world.keeper._waited
    world.keeper.turn()
    assert (world.keeper._handed._gradients, world.keeper._handed._made) == ({}, {})


def test_work_that_does_not_count_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = working(tmp_path)
    site = world.sites[0]
    while site.book.boundary.step == site.state.step:
        world.keeper.turn()
        world.sites[1].turn()
        site.turn()
    undone: list[bool] = []
    monkeypatch.setattr(site, "_undo", lambda: undone.append(True))
    site.book.boundary = site.book.boundary.model_copy(update={"counted": [B]})
    after = world.keeper.state
    monkeypatch.setattr(site, "_state_after", lambda *_: after)
    assert site.turn() == ""
    assert undone == [True]


def test_a_file_of_a_site_that_does_not_count_is_nobodys() -> None:
    counted: Any = {A: None}
    made = SettledStep(0, 0, counted, {A: ["f0"], B: ["f1"]})
    assert [made.site_of(file) for file in ("f0", "f1", "f2")] == [A, "", ""]


def test_a_bucket_that_fails_as_a_step_is_taken_over_is_tried_again() -> None:
    taken: list[int] = []

    def advance() -> SettledStep:
        taken.append(1)
        if len(taken) == 1:
            raise UnreachableError("no bucket")
        return SettledStep(0, 0, {}, {A: ["ab" * 32]})

    keeper = SimpleNamespace(state=SimpleNamespace(step=1), waiting_for=lambda: "nothing")
    group: Any = SimpleNamespace(
        given=["ab" * 32], learner=SimpleNamespace(step=0, outer=0), keeper=keeper, shown=lambda: None, advance=advance
    )
    records: Any = SimpleNamespace(metrics=list)
    until = Waiting(threading.Event(), 0.001, lambda: None).until
    steps = SiteSteps(group, CONFIG.train, lambda *_: None, records, until)
    files: Any = [SimpleNamespace(sha256=bytes.fromhex("ab" * 32))]
    assert steps.train_step(StepFiles(files, [[]])) is not None
    assert len(taken) == 2


def test_checkpoints_of_another_kind_or_run_or_place_are_refused(tmp_path: Path) -> None:
    run, folder = run_of_two(), tmp_path / "step-000003"
    made = group_at(tmp_path, 4, run)
    made.learner.step = made.learner.outer = 3
    made.start_checkpoint(folder, {"consumed": []})
    assert group_at(tmp_path, 4, run).load_checkpoint(folder) == {"consumed": []}
    with pytest.raises(ConfigError, match="stand at outer step 9, the checkpoint at 3"):
        group_at(tmp_path, 9, run).load_checkpoint(folder)
    with pytest.raises(ConfigError, match="another run of sites"):
        group_at(tmp_path, 4, run.model_copy(update={"name": "other"})).load_checkpoint(folder)
    with pytest.raises(ConfigError, match="is of several sites"):
        read_checkpoint(folder, None, [], Placement().ranks)
    alone = {"version": 2, "step": 3, "updates": 9, "extra": {}}
    sealed = {"state": alone, "sha256": sha256_hex(canonical_json(alone))}
    (folder / "state.json").write_bytes(canonical_json(sealed))
    with pytest.raises(ConfigError, match="a trainer without any"):
        group_at(tmp_path, 4, run).load_checkpoint(folder)


@pytest.mark.parametrize(
    ("change", "files", "word"),
    [
        ({}, 2, ""),
        ({}, 1, "2 sites for 1 to 1 files"),
        ({}, MAX_ITEMS + 1, f"{MAX_ITEMS} files a step"),
        ({"pool_config": None}, 2, "name its SHA-256"),
        ({"pool_config": "00" * 32}, 2, "name its SHA-256"),
    ],
)
def test_a_run_fits_its_pool(change: dict[str, Any], files: int, word: str) -> None:
    train = CONFIG.train.model_copy(update={"files_per_step": files})
    pool = CONFIG.model_copy(update={"train": train})
    run = run_of_two().model_copy(update={"pool_config": pool.digest.hex()} | change)
    if not word:
        return check_run_of(run, pool)
    with pytest.raises(ConfigError) as caught:
        check_run_of(run, pool)
    assert word in str(caught.value)


def test_a_home_is_one_runs(tmp_path: Path) -> None:
    run = run_of_two()
    claim_home(tmp_path, run)
    claim_home(tmp_path, run)
    with pytest.raises(ConfigError, match="another run"):
        claim_home(tmp_path, run.model_copy(update={"name": "other"}))
