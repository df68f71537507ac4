"""A pool's policy steps by events alone: whole, in order, of this pool only, also from an endpoint that gives few
blocks of logs at once, and never with a gap."""

from pathlib import Path
from typing import Any

import pytest

from chain.client import ChainClient
from chain.contracts.pools import Pools
from chain.published_steps import published_manifests
from protocol.errors import MusterError, UnreachableError
from tests.chain.game import Game, begin, terms
from tests.chain.proxy import Proxy
from tests.conftest import CHAIN_ID, GRAINS, Deployed


@pytest.fixture
def game(deployed: Deployed, tmp_path: Path) -> Game:
    """Three steps of its pool, and one of another's in between, in blocks far apart."""
    made = begin(deployed, tmp_path)
    owner = deployed.suite(made.owner).pools
    other = owner.create_pool(terms(), 1000 * GRAINS).send()
    for step in range(3):
        owner.publish_step(made.pool, step, bytes([step + 1]) * 32).send()
        if step == 1:
            owner.publish_step(other, 0, b"\x99" * 32).send()
        deployed.chain.mine(300)
    return made


def pools_at(game: Game, url: str) -> Pools:
    return Pools(ChainClient([url], CHAIN_ID, patience=2.0), game.deployed.deployment)


def test_all_steps_of_one_pool_in_order(game: Game) -> None:
    assert published_manifests(pools_at(game, game.deployed.chain.url), game.pool) == [
        bytes([step + 1]) * 32 for step in range(3)
    ]
    assert published_manifests(pools_at(game, game.deployed.chain.url), 77) == []


def test_an_endpoint_that_gives_few_blocks_at_once(game: Game) -> None:
    proxy, asked = Proxy(game.deployed.chain.url), list[int]()

    def limited(request: dict[str, Any]) -> dict[str, Any] | None:
        if request["method"] != "eth_getLogs":
            return None
        query = request["params"][0]
        blocks = int(query["toBlock"], 16) - int(query["fromBlock"], 16) + 1
        asked.append(blocks)
        return {"error": {"code": -32602, "message": "too many blocks"}} if blocks > 100 else None

    try:
        proxy.rule = limited
        assert len(published_manifests(pools_at(game, proxy.url), game.pool)) == 3
        assert len(asked) < 100
        proxy.rule = lambda request: (
            {"error": {"code": -32602, "message": "no"}} if request["method"] == "eth_getLogs" else None
        )
        with pytest.raises(MusterError, match="gives no logs"):
            published_manifests(pools_at(game, proxy.url), game.pool)
    finally:
        proxy.close()


def test_an_endpoint_that_leaves_out_a_step_is_not_believed(game: Game) -> None:
    proxy, seen = Proxy(game.deployed.chain.url), list[list[Any]]()

    def forgetful(request: dict[str, Any]) -> dict[str, Any] | None:
        if request["method"] != "eth_getLogs":
            return None
        if not seen:
            seen.append(game.deployed.chain.rpc("eth_getLogs", *request["params"]))
        return {"result": seen[0][1:]}

    try:
        proxy.rule = forgetful
        with pytest.raises(UnreachableError, match="leaves out steps"):
            published_manifests(pools_at(game, proxy.url), game.pool)
    finally:
        proxy.close()
