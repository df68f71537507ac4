"""The demo's node that never uploads."""

from types import SimpleNamespace
from typing import Any, cast

from chain.contracts.pools import WorkItem
from chain.state import State
from localnet.absentee import Absentee
from localnet.onboarding import Onboarding
from localnet.pool import pool_terms
from localnet.real_pool import real_config
from protocol.config import BF16_CHECKS


class FirstFile:
    """Stands for the suite of contracts: remembers what is handed in."""

    def __init__(self) -> None:
        self.items: list[WorkItem] = []
        self.pools = self

    def submit(self, _pool: int, _step: int, _counter: int, item: WorkItem) -> "FirstFile":
        self.items.append(item)
        return self

    def send(self) -> Any:
        return SimpleNamespace(sequence=0)


def test_the_absentee_claims_no_more_units_than_the_pool_takes() -> None:
    suite, terms = FirstFile(), pool_terms(real_config("a model", 1, 24, BF16_CHECKS))
    node = SimpleNamespace(address="0xD")
    onboarding = SimpleNamespace(
        plan=SimpleNamespace(absentee="dave"), ring={"node-dave": node}, suite=lambda _name: suite
    )
    state = SimpleNamespace(
        usable_step=lambda *_: 0, submissions_of=lambda _pool: [], pools={1: SimpleNamespace(terms=terms)}
    )
    Absentee(cast(Onboarding, onboarding), lambda _line: None).look(cast(State, state))
    assert [item.units for item in suite.items] == [terms.maxUnits]
