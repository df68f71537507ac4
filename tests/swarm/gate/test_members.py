"""Whoever's stake lies on chain may share; strangers' keys cost next to nothing, and a chain that is gone nobody."""

import secrets
from types import SimpleNamespace

import pytest

from chain.contracts.swarms import MemberView
from orchestrator.errors import HttpError
from protocol import eip712
from protocol.errors import UnreachableError
from swarm.gate.members import StakedMembers
from tests.swarm.gate.world import FIRST, SECOND, STRANGER, GateClock


class ScriptedSwarms:
    """The contract: `joined` address → block; counts its calls."""

    def __init__(self, **fields: object) -> None:
        self.head, self.calls, self.gone = 100, 0, False
        self.views: dict[str, MemberView] = {}
        self.client = SimpleNamespace(head=lambda: SimpleNamespace(number=self.head))

    def stands(self, address: str, joined: int, release: int = 0, ejected: bool = False) -> None:
        self.views[address] = MemberView(address, address, 40, joined, release, 0, ejected)

    def members_of(self, number: int, asked: list[str]) -> list[MemberView]:
        self.calls += 1
        if self.gone:
            raise UnreachableError("the chain is gone")
        nobody = "0x" + "0" * 40
        return [self.views.get(one, MemberView(one, nobody, 0, 0, 0, 0, False)) for one in asked]


@pytest.fixture
def swarms() -> ScriptedSwarms:
    made = ScriptedSwarms()
    made.stands(FIRST, 10)
    return made


def members_of(swarms: ScriptedSwarms, clock: GateClock) -> StakedMembers:
    return StakedMembers(swarms, 1, 12, 15.0, clock)  # type: ignore[arg-type]


def status(members: StakedMembers, address: str) -> int:
    try:
        members.check(address)
    except HttpError as error:
        return error.status
    return 200


def test_who_may_share(swarms: ScriptedSwarms) -> None:
    clock = GateClock()
    members = members_of(swarms, clock)
    swarms.stands(SECOND, 88)
    assert status(members, FIRST) == 200
    clock.now += 2
    assert status(members, SECOND) == 403, "its block may still be replaced"
    clock.now += 2
    assert status(members, STRANGER) == 403
    swarms.head += 1
    clock.now += 2
    assert status(members, SECOND) == 200


@pytest.mark.parametrize("ejected", [False, True])
def test_who_left_or_was_ejected_may_not_for_long(swarms: ScriptedSwarms, ejected: bool) -> None:
    clock = GateClock()
    members = members_of(swarms, clock)
    assert status(members, FIRST) == 200
    swarms.stands(FIRST, 10, release=0 if ejected else 5, ejected=ejected)
    clock.now += 16
    assert status(members, FIRST) == 403


def test_what_is_known_costs_no_call_and_outlives_the_chain(swarms: ScriptedSwarms) -> None:
    clock = GateClock()
    members = members_of(swarms, clock)
    for _ in range(5):
        assert status(members, FIRST) == 200
        clock.now += 2
    assert swarms.calls == 1
    swarms.gone = True
    clock.now += 100
    assert status(members, FIRST) == 200
    clock.now += 2
    assert status(members, STRANGER) == 503


def test_strangers_keys_cost_a_call_a_second_and_keep_no_member_out(swarms: ScriptedSwarms) -> None:
    clock = GateClock()
    members = members_of(swarms, clock)
    for _ in range(400):
        assert status(members, eip712.checked_address("0x" + secrets.token_hex(20))) in (403, 503)
    assert swarms.calls == 1
    assert status(members, FIRST) == 503
    clock.now += 2
    assert status(members, FIRST) == 200, "in the same call as all others"
    assert swarms.calls == 2


def test_what_waits_is_bounded(swarms: ScriptedSwarms) -> None:
    clock = GateClock()
    members = members_of(swarms, clock)
    for _ in range(2000):
        status(members, eip712.checked_address("0x" + secrets.token_hex(20)))
    assert len(members._wanted) <= 500
    clock.now += 2
    status(members, next(iter(members._wanted)))
    assert not members._wanted
    assert not members._known, "strangers take no memory for long"


def flooded(members: StakedMembers) -> None:
    for _ in range(600):
        status(members, eip712.checked_address("0x" + secrets.token_hex(20)))


def test_strangers_who_never_come_again_keep_nobody_out(swarms: ScriptedSwarms) -> None:
    clock = GateClock()
    members = members_of(swarms, clock)
    flooded(members)
    clock.now += 2
    assert status(members, FIRST) == 200, "asked about, however many wait"
    assert swarms.calls == 2
    assert not members._wanted


def test_who_left_cannot_hide_behind_strangers(swarms: ScriptedSwarms) -> None:
    clock = GateClock()
    members = members_of(swarms, clock)
    assert status(members, FIRST) == 200
    swarms.stands(FIRST, 10, release=5)
    clock.now += 16
    flooded(members)
    status(members, FIRST)
    clock.now += 2
    status(members, STRANGER)
    assert status(members, FIRST) == 403


def test_who_is_being_asked_about_again_is_known_meanwhile(swarms: ScriptedSwarms) -> None:
    members = members_of(swarms, clock := GateClock())
    found = []

    class AsksMeanwhile(dict[str, tuple[bool, float]]):
        def pop(self, key: str, default: object = None) -> object:  # type: ignore[override]
            gone = super().pop(key, default)
            found.append(status(members, FIRST))
            return gone

    assert status(members, FIRST) == 200
    members._known = AsksMeanwhile(members._known)
    clock.now += 16
    assert status(members, FIRST) == 200
    assert set(found) <= {200}
