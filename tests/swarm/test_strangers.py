"""What the chain is asked about addresses does not grow with the keys that a stranger makes."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chain.swarms import MemberView
from swarm import registry as registry_module
from swarm.registry import ASKED_AT_ONCE, SETTLED, SwarmRegistry, UnknownMember

OWN, STAKED = "0x" + "aa" * 20, "0x" + "bb" * 20
JOINED = 10


def stranger(number: int) -> str:
    return f"0x{number:040x}"


class CountingChain:
    """A contract with few members, and what it was asked about them, call by call."""

    swarm, id = 1, "swarm 1"

    def __init__(self, *members: str) -> None:
        self.joined = set(members)
        self.calls: list[list[str]] = []
        self.head = JOINED + 100
        self.client = SimpleNamespace(
            head=lambda: SimpleNamespace(number=self.head),
            blocks=lambda numbers: [SimpleNamespace(hash=bytes([number] * 32)) for number in numbers],
        )

    def members_of(self, swarm: int, addresses: Sequence[str]) -> list[MemberView]:
        self.calls.append(list(addresses))
        return [
            MemberView(one, one, 1, JOINED, 0, 0, False)
            if one in self.joined
            else MemberView(one, "", 0, 0, 0, 0, False)
            for one in addresses
        ]

    def attempt(self, what: str, do: Callable[[Any], Any], sends: bool = False) -> Any:
        return do(self)


def registry_of(chain: CountingChain, folder: Path) -> SwarmRegistry:
    return SwarmRegistry(chain, folder / "members.json", 3600, 12)  # type: ignore[arg-type]


def knows(registry: SwarmRegistry, address: str) -> bool:
    try:
        return registry.is_member(address)
    except UnknownMember:
        return False


def test_a_thousand_strange_keys_cost_few_calls_and_keep_no_member_out(tmp_path: Path) -> None:
    chain = CountingChain(OWN, STAKED)
    registry = registry_of(chain, tmp_path)
    registry.refresh(OWN)
    chain.calls.clear()
    for number in range(64):
        assert not knows(registry, stranger(number))
        assert not knows(registry, stranger(number)), "asked about once, whatever is shared under it"
    assert not knows(registry, STAKED), "it came after all of them"
    assert len(chain.calls) == ASKED_AT_ONCE
    registry.refresh(OWN)
    assert len(chain.calls) == ASKED_AT_ONCE + 1
    assert knows(registry, STAKED)
    assert len(chain.calls) == ASKED_AT_ONCE + 1, "what was just answered is not asked again"


def test_a_newcomer_is_asked_about_at_once(tmp_path: Path) -> None:
    chain = CountingChain(OWN)
    registry = registry_of(chain, tmp_path)
    registry.refresh(OWN)
    assert not knows(registry, STAKED)
    chain.joined.add(STAKED)
    registry.refresh(OWN)
    assert knows(registry, STAKED)


@pytest.mark.parametrize("settled", [False, True])
def test_a_sharer_that_may_still_be_replaced_is_asked_about_once_a_round(tmp_path: Path, settled: bool) -> None:
    chain = CountingChain(OWN, STAKED)
    chain.head += SETTLED * settled
    registry = registry_of(chain, tmp_path)
    assert knows(registry, STAKED)
    chain.calls.clear()
    for _ in range(3):
        registry.refresh(OWN)
        chain.calls.clear()
        for _ in range(50):
            assert knows(registry, STAKED)
        assert len(chain.calls) <= (0 if settled else 1)


def test_who_waits_to_be_asked_about_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "_AT_ONCE", 20)
    chain = CountingChain(OWN)
    registry = registry_of(chain, tmp_path)
    registry.refresh(OWN)
    for number in range(1000):
        knows(registry, stranger(number))
    registry.refresh(OWN)
    assert len(chain.calls[-1]) == 20
