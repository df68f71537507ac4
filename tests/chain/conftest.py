"""What the chain's tests share: a misbehaving endpoint, a game on a chain, and calls that move money."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from chain.indexer.follower import Follower
from chain.indexer.logs import Event
from chain.transactions import Call
from tests.chain.game import Game, begin
from tests.chain.proxy import Proxy
from tests.conftest import Chain, Deployed

SELF = "0x000000000000000000000000000000000000bEEF"
ALICE = "0x00000000000000000000000000000000000A11cE"


def gift(wei: int = 1) -> Call:
    return Call(SELF, b"", "gift", wei)


def mint(deployed: Deployed, base_units: int) -> None:
    deployed.suite(deployed.governance).token.mint(ALICE, base_units).send()


def follow(deployed: Deployed, path: Path) -> Follower:
    return Follower(deployed.chain.client(), deployed.deployment, path / "events.db")


def amounts(events: list[Event]) -> list[int]:
    return [e.args["value"] for e in events if (e.contract, e.name) == ("MusterToken", "Transfer")]


@pytest.fixture
def proxy(chain: Chain) -> Iterator[Proxy]:
    made = Proxy(chain.url)
    yield made
    made.close()


@pytest.fixture
def game(deployed: Deployed, tmp_path: Path) -> Game:
    return begin(deployed, tmp_path)
