"""Versions that a pool accepts: who says so, who hears of it when, and what never depends on one."""

import json
from typing import Any

import pytest

from protocol import VERSION
from protocol.api.endpoints import RELEASES
from protocol.api.releases import Release, Releases
from protocol.errors import IntegrityError
from runtime.diagnose import Facts, ServiceFacts, WatchLimits, surroundings
from tests.orchestrator.chain import CHEAT, NODE, OWNER
from tests.orchestrator.conftest import POOL, Desk, is_error


def releases(*entries: tuple[int, list[str]], signer: Any = OWNER) -> Releases:
    return Releases.signed(signer, POOL, [Release(from_step=step, versions=names) for step, names in entries])


@pytest.mark.parametrize(
    ("version", "step", "says"),
    [
        ("1.0", 0, ""),  # before the first release every version may work
        (
            "1.0",
            4,
            "from policy step 10 on (now 4) the pool accepts muster 2.0, and this is 1.0: muster upgrade",
        ),
        ("1.1", 4, "from policy step 10 on (now 4) the pool accepts muster 2.0"),
        ("0.9", 4, "the pool accepts muster 1.0 or 1.1 or 2.0, and this is 0.9: muster upgrade"),
        ("1.0", 10, "the pool accepts muster 2.0, and this is 1.0: muster upgrade"),
        ("2.0", 4, ""),
        ("2.0", 11, ""),
    ],
)
def test_what_a_version_is_told_before_and_after_a_pool_moves_on(version: str, step: int, says: str) -> None:
    known = releases((2, ["1.0", "1.1", "2.0"]), (10, ["2.0"]))
    if step == 0:
        known = releases((2, ["1.0"]))
    said = known.notice(version, step)
    assert said.startswith(says)
    assert bool(said) is bool(says)
    assert bool(known.refusal(version, step)) is (says.startswith("the pool accepts"))


def test_the_version_to_upgrade_to_is_accepted_now_and_later() -> None:
    assert releases((0, ["1.0", "2.0"]), (9, ["2.0", "3.0"])).wanted(3) == "2.0"
    assert releases((0, ["1.0", "2.0"]), (9, ["2.0", "3.0"])).wanted(9) == "3.0"
    with pytest.raises(IntegrityError, match="both now and later"):
        releases((0, ["1.0"]), (9, ["2.0"])).wanted(3)


def test_only_the_owners_releases_of_this_pool_count(desk: Desk) -> None:
    assert is_error(desk.http.get("/v1/releases"), 404, "every version")
    file = desk.service.releases_file = desk.home / "releases.json"
    for made in (releases((0, ["9.0"]), signer=NODE), b"{", b'{"releases": [], "signature": "0x"}'):
        file.write_bytes(made if isinstance(made, bytes) else made.model_dump_json().encode())
        assert is_error(desk.http.get("/v1/releases"), 404, "every version")
        assert len(desk.service.problems()) == 1, "the owner is told"
        assert desk.lease(NODE, version=VERSION)["lease"]
    file.write_text(releases((0, ["9.0"])).model_dump_json())
    assert RELEASES.answer.validate_python(desk.get("releases")).at(0) == Release(from_step=0, versions=["9.0"])
    assert desk.service.problems() == []
    for spoiled in (b"{", None):
        if spoiled is None:
            file.unlink()
            file.mkdir()
        else:
            file.write_bytes(spoiled)
        assert desk.get("releases")["releases"], "a half-copied or unreadable file takes back nothing"
        assert len(desk.service.problems()) == 1
    file.rmdir()
    assert is_error(desk.http.get("/v1/releases"), 404, "every version")
    assert desk.service.problems() == []


@pytest.mark.parametrize("steps", [[3, 3], [3, 1]])
def test_releases_whose_steps_do_not_rise_are_refused(steps: list[int]) -> None:
    with pytest.raises(ValueError, match="must rise"):
        releases(*((step, ["1.0"]) for step in steps))


def test_a_version_that_is_not_accepted_gets_no_new_lease_and_hears_of_it_before(desk: Desk) -> None:
    file = desk.service.releases_file = desk.home / "releases.json"
    file.write_text(releases((0, [VERSION, "9.0"]), (1, ["9.0"])).model_dump_json())
    lease = desk.lease(NODE, version=VERSION)
    assert lease["lease"], "it may work until then"
    assert "from policy step 1 on" in desk.beat(NODE, version=VERSION)["notice"]
    assert desk.beat(CHEAT, version="9.0")["notice"] == ""
    desk.follow(lambda: desk.chain.publish(1))
    refused = desk.lease(CHEAT, version=VERSION)
    assert "the pool accepts muster 9.0" in refused["reason"]
    assert refused["wait"] == 60
    assert desk.lease(CHEAT, version="9.0")["lease"]
    assert "lease" in desk.lease(NODE), "what says no version is not refused"


def test_an_open_file_is_taken_and_its_lease_kept_whatever_the_version(desk: Desk) -> None:
    lease = desk.lease(NODE, version=VERSION)["lease"]
    file = desk.service.releases_file = desk.home / "releases.json"
    file.write_text(releases((0, ["9.0"])).model_dump_json())
    beaten = desk.beat(NODE, version=VERSION, leases=[lease])
    assert beaten["lease_expires"] is not None
    assert "the pool accepts muster 9.0" in beaten["notice"]
    upload = desk.post(NODE, "/v1/uploads", {"kind": "rollouts", "sha256": "ab" * 32, "size": 10})
    assert upload.status_code == 200, upload.text


def test_the_alarm_says_it_before_it_breaks() -> None:
    notice = releases((0, [VERSION, "9.0"]), (5, ["9.0"])).notice(VERSION, 3)
    facts = Facts(0.0, service=ServiceFacts(version="9.0", notice=notice))
    (alarm,) = surroundings(WatchLimits(), facts)
    assert (alarm.name, alarm.what) == ("version_behind", notice)
    assert "muster upgrade" in alarm.hint
    assert json.loads(releases((0, ["1.0"])).model_dump_json())["releases"] == [{"from_step": 0, "versions": ["1.0"]}]
