"""What a hostile site does to the published weights, through the whole exchange: nothing; and with the check that is
meant to stop it taken out, something."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import protocol.sites.contribution as contribution_module
import protocol.sites.payload as payload_module
import trainer.sites.site as site_module
from protocol.sites.admission import Admitted
from protocol.sites.contribution import seal_contribution
from protocol.sites.layout import Tensors
from protocol.sites.outer import OuterState
from tests.trainer.sites.world import SITES, MemoryBucket, SitesWorld, make_run
from trainer.sites.catching_up import limits_at
from trainer.sites.exchange import decoded
from trainer.sites.replica import judge, settle
from trainer.sites.share_of_step import OwnContribution, make_own

BAD = str(SITES[3].address)
Alter = Callable[[OuterState, Tensors], Tensors]


def moved(factor: float) -> Alter:
    """The pseudo-gradient times a factor."""
    return lambda state, inner: {
        name: (value - np.float32(factor) * (value - inner[name])).astype(np.float32)
        for name, value in state.weights.items()
    }


def noise(state: OuterState, inner: Tensors) -> Tensors:
    dice = np.random.default_rng(1)
    return {
        name: (value + dice.standard_normal(value.shape) * (value - inner[name]).std()).astype(np.float32)
        for name, value in state.weights.items()
    }


def nan(state: OuterState, inner: Tensors) -> Tensors:
    return {name: np.where(one == one.max(), np.float32(np.nan), one) for name, one in inner.items()}


class HostileMaking:
    """How site 3 makes its contribution from outer step 2 on; `seen`: those of the others, by site."""

    def __init__(self, alter: Alter | None = None, what: str = "") -> None:
        self._alter, self._what = alter, what
        self.seen: dict[str, OwnContribution] = {}
        self.states: list[OuterState] = []

    def __call__(self, state: OuterState, inner: Tensors, limits: Any, account: Any, *rest: Any) -> OwnContribution:
        own = make_own(state, inner, limits, account, *rest)
        if account.address != BAD:
            self.seen[str(account.address)] = own
            return own
        self.states.append(state)
        if state.step < 2:  # by then it is a member, whoever came first
            return own
        if self._alter is not None:
            return make_own(state, self._alter(state, inner), limits, account, *rest)
        if self._what == "stale":
            old = replace(limits, step=self.states[0].step, base=self.states[0].digest.hex())
            return replace(make_own(state, inner, old, account, *rest), base=own.base)
        victim = next(iter(self.seen.values()))
        if self._what == "document":
            return replace(victim, dealt=own.dealt)
        entries = contribution_module.SignedContribution.model_validate_json(victim.document).contribution.shards
        mine = contribution_module.SignedContribution.model_validate_json(own.document).contribution
        stolen = seal_contribution(mine.model_copy(update={"shards": entries}), account)
        return replace(own, document=stolen, payload=victim.payload)


def unmoved_by(attack: HostileMaking, home: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> bool:
    """Whether the state after outer step 2, to which site 3 contributed so, is that of the honest alone."""
    monkeypatch.setattr(site_module, "make_own", attack)
    run = make_run(4, "hostile", mode=mode, window_seconds=1, training_seconds=1, inner_steps=8)
    world = SitesWorld(MemoryBucket(), run, home)
    for number in range(4):
        world.start(number)
    world.until(2)
    before = world.keeper.state
    limits = limits_at(world.keeper.exchange, before)
    while world.keeper.state.step < 3:
        world.turn()
    honest = {
        site: decoded(own.payload, site, limits, before)
        for site, own in attack.seen.items()
        if own.base == before.digest.hex()
    }
    assert len(honest) == 3
    alone = settle(before, honest, run.settings)
    assert alone is not None
    return world.keeper.state.digest == alone.digest


ALTERED = {
    "zeros": (moved(0), "int8"),
    "ten times as long": (moved(10), "int8"),
    "a tenth": (moved(0.1), "int8"),
    "flipped": (moved(-1), "int8"),
    "flipped and long": (moved(-2.5), "sparse"),
    "noise": (noise, "int8"),
    "NaN": (nan, "float32"),
}


@pytest.mark.parametrize("name", ALTERED)
def test_what_hostile_work_does(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alter, mode = ALTERED[name]
    unmoved = unmoved_by(HostileMaking(alter), tmp_path, monkeypatch, mode)
    assert unmoved


@pytest.mark.parametrize("name", ["zeros", "ten times as long", "flipped"])
def test_and_what_it_does_where_all_is_admitted(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def all_of_them(state: OuterState, gradients: dict[str, Tensors], config: Any) -> Admitted:
        return Admitted({site: Fraction(1, len(gradients)) for site in gradients}, {})

    monkeypatch.setattr("trainer.sites.handed_in.judge", all_of_them)
    monkeypatch.setattr("trainer.sites.catching_up.judge", all_of_them)
    alter, mode = ALTERED[name]
    unmoved = unmoved_by(HostileMaking(alter), tmp_path, monkeypatch, mode)
    assert not unmoved


@pytest.mark.parametrize("what", ["stale", "document", "payload"])
def test_what_is_not_its_own_work_does(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unmoved = unmoved_by(HostileMaking(what=what), tmp_path, monkeypatch, "int8")
    assert unmoved


def test_and_what_a_copy_does_that_is_not_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload_module, "binding", lambda place, shard: bytes(32))
    unmoved = unmoved_by(HostileMaking(what="payload"), tmp_path, monkeypatch, "int8")
    assert not unmoved


def test_and_what_stale_work_does_that_is_not_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contribution_module, "_check_place", lambda made, limits: None)
    monkeypatch.setattr(payload_module, "binding", lambda place, shard: bytes(32))
    unmoved = unmoved_by(HostileMaking(what="stale"), tmp_path, monkeypatch, "int8")
    assert not unmoved


def test_and_whose_work_another_s_document_is_taken_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the check of who made it, its payload is still bound to its maker."""
    monkeypatch.setattr(payload_module, "binding", lambda place, shard: bytes(32))

    def blind(exchange: Any, document: str, site: str, limits: Any) -> Any:
        data = exchange._bucket.get(f"contributions/{document}", limits.file_bytes)
        return contribution_module.open_contribution(data, limits)

    monkeypatch.setattr("trainer.sites.exchange.SiteExchange.contribution", blind)
    unmoved = unmoved_by(HostileMaking(what="document"), tmp_path, monkeypatch, "int8")
    assert not unmoved


def test_what_was_judged_once_is_not_judged_at_every_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One hostile site of three leaves two, which make no step: the keeper waits, and looks again and again."""
    judged: list[int] = []

    def counted(state: OuterState, gradients: dict[str, Tensors], config: Any) -> Admitted:
        judged.append(len(gradients))
        return judge(state, gradients, config)

    monkeypatch.setattr("trainer.sites.handed_in.judge", counted)
    monkeypatch.setattr(site_module, "make_own", flipped_by_last := LastFlips())
    run = make_run(3, "too-few", window_seconds=1000, training_seconds=1000, inner_steps=8)
    world = SitesWorld(MemoryBucket(), run, tmp_path)
    for number in range(3):
        world.start(number)
    while world.keeper.book.schedule.phase.value != "settle":
        world.turn()
    for _ in range(20):
        world.keeper.turn()
    assert judged == [3]
    assert sorted(world.keeper.status()["excluded"]) == sorted(world.run.sites)
    world.keeper._next.since = world.keeper._started = 0.0
    world.keeper.turn()
    monkeypatch.undo()
    assert (world.keeper.book.schedule.attempt, world.keeper.state.step) == (2, 0)
    assert flipped_by_last.times == 1


class LastFlips:
    """The last of three sites sends what points back."""

    times = 0

    def __call__(self, state: OuterState, inner: Tensors, limits: Any, account: Any, *rest: Any) -> OwnContribution:
        if account.address != SITES[2].address:
            return make_own(state, inner, limits, account, *rest)
        self.times += 1
        return make_own(state, moved(-1)(state, inner), limits, account, *rest)
