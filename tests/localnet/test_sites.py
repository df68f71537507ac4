"""Several sites in a demo run: each is killed once while an outer step is under way, and the log says who did what."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from chain.indexer.state import State
from localnet.network import Network, Stop
from localnet.onboarding import KeyRing, names
from localnet.plan import POOL, DemoPlan, Options, make_plan, pool_config
from localnet.sites import SiteKiller, sites_run
from localnet.sites_summary import LoggedStep, shown_sites, summarise, wrong_with_sites
from protocol.encoding import load_document
from protocol.files import write_atomic
from runtime.supervisor import Supervisor
from storage.weights.manifest import StepSites
from tests.trainer.helpers import small_model
from trainer.config import TrainerConfig
from trainer.sites.config import SiteConfig
from trainer.sites.main import SiteDaemon, _site
from trainer.sites.pool_run import check_run_of
from trainer.sites.reinforcement import ReinforcementWork

A, B = "0x" + "aA" * 20, "0x" + "bB" * 20
NAMES = {A: "site-1", B: "site-2"}
STEPS = [
    LoggedStep(1, (A, B), {"f0": A, "f1": B}, 10.0, 12.0, False),
    LoggedStep(2, (A,), {"f2": A, "f3": A}, 20.0, 29.0, True),
]
TRAINED = [{"sha256": f"f{number}", "site": site} for number, site in enumerate((A, B, A, A))]
MADE_BY = [None, *(StepSites.model_construct(run="", outer_step=one.number, sites=one.counted) for one in STEPS)]
KILLS = {"site-2": 21.0, "site-1": 11.5}


@pytest.fixture
def plan(tmp_path: Path) -> DemoPlan:
    return make_plan(Options(7, 9, tmp_path, sites=2))


def test_one_site_is_none(plan: DemoPlan) -> None:
    assert replace(plan, sites=1).site_names == []
    assert plan.site_names == ["site-1", "site-2"]
    assert names(plan) == [*names(replace(plan, sites=1)), "site-1", "site-2"]


@pytest.mark.parametrize(("exchange", "shards"), [("all", 1), ("shards", 2)])
def test_the_run_fits_the_pool(tmp_path: Path, exchange: Literal["all", "shards"], shards: int) -> None:
    plan = make_plan(Options(7, 9, tmp_path, sites=2, exchange=exchange))
    ring, config = KeyRing(plan.root / "keys"), pool_config(7, 9)
    run = sites_run(plan, ring, "0x" + "00" * 19 + "99", config)
    check_run_of(run, config)
    assert (run.keeper, run.sites) == (ring["owner"].address, (ring["site-1"].address, ring["site-2"].address))
    assert (run.exchange, run.settings.shards) == (exchange, shards)


def test_the_processes_take_what_they_are_told(plan: DemoPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to a site that has everything but a bucket."""
    started: list[str] = []
    monkeypatch.setattr(Supervisor, "start", lambda _self, child: started.append(child.name))
    ring, config, base = KeyRing(plan.root / "keys"), pool_config(7, 9), small_model(plan.root / "base")
    network = Network(plan, ring, print, Stop.__new__(Stop))
    network.config_path.write_bytes(config.canonical())
    network.s3_settings().credentials.parent.mkdir(parents=True)
    write_atomic(network.s3_settings().credentials, b'{"access_key": "a", "secret_key": "b"}', 0o600)
    plan.sites_run.write_text(sites_run(plan, ring, "0x" + "00" * 19 + "99", config).model_dump_json(indent=2))
    network.start_trainer(POOL, base)
    network.start_sites(base)
    assert started == ["trainer", "site-1", "site-2"]
    assert load_document(plan.root / "configs" / "trainer.json", TrainerConfig).sites == plan.sites_run
    made = _site(load_document(plan.root / "configs" / "site-2.json", SiteConfig))
    assert isinstance(made, SiteDaemon)
    assert made._site.address == ring["site-2"].address
    assert isinstance(made._site.inner, ReinforcementWork)
    made._held.close()


def test_each_site_is_killed_once_in_an_outer_step(plan: DemoPlan) -> None:
    killed: list[str] = []
    killer = SiteKiller(plan, killed.append, lambda _: None, lambda: 5.0)
    killer.look(State())
    path = plan.home("trainer") / "pool" / "sites" / "status.json"
    path.parent.mkdir(parents=True)
    shown = {"step": 2, "items": 4, "phase": "collect"}
    for status, expected in (
        (shown, []),
        (shown | {"step": 3, "items": None}, []),
        (shown | {"step": 3, "phase": "settle"}, []),
        (shown | {"step": 3}, ["site-1"]),
        (shown | {"step": 5}, ["site-1"]),
        (shown | {"step": 6}, ["site-1", "site-2"]),
        (shown | {"step": 8}, ["site-1", "site-2"]),
    ):
        path.write_text(json.dumps(status))
        killer.look(State())
        assert killed == expected
    assert killer.kills == {"site-1": 5.0, "site-2": 5.0}


def test_what_a_log_says(plan: DemoPlan) -> None:
    found = summarise(STEPS, NAMES, KILLS, TRAINED, MADE_BY)
    assert [(one.files, one.outer_steps, one.killed) for one in found.sites] == [(3, 2, [1]), (1, 1, [2])]
    assert (found.used_once, found.files, found.repeated, found.named) == (True, 4, [2], 2)
    assert list(wrong_with_sites(found, 4)) == []
    assert "each of 4 files used once: yes" in list(shown_sites(found))[-1]


@pytest.mark.parametrize(
    ("steps", "trained"),
    [
        (STEPS, TRAINED[:3]),
        (STEPS, [*TRAINED[:3], {"sha256": "f3", "site": B}]),
        ([STEPS[0], replace(STEPS[1], site_of={"f2": A, "f1": A})], TRAINED),
        ([STEPS[0], replace(STEPS[1], counted=(B,))], TRAINED),
    ],
)
def test_a_file_that_is_not_used_once_is_told(steps: list[LoggedStep], trained: list[dict[str, str]]) -> None:
    assert not summarise(steps, NAMES, KILLS, trained, MADE_BY).used_once


def test_a_site_that_is_not_killed_or_named_is_told() -> None:
    found = summarise(STEPS, NAMES, {"site-1": 15.0}, TRAINED, [None, None, MADE_BY[2]])
    assert list(wrong_with_sites(found, 4)) == [
        "1 manifests do not name the sites that made their steps",
        "site-1 was not killed during an outer step",
        "site-2 was not killed during an outer step",
    ]
