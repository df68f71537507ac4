"""What the follower's tests share."""

from pathlib import Path
from typing import Any

from chain.indexer.follower import Follower
from chain.indexer.logs import Event
from tests.conftest import Deployed

ALICE = "0x00000000000000000000000000000000000A11cE"


def mint(deployed: Deployed, base_units: int) -> None:
    deployed.suite(deployed.governance).token.mint(ALICE, base_units).send()


def follow(deployed: Deployed, path: Path, **options: Any) -> Follower:
    return Follower(deployed.chain.client(), deployed.deployment, path / "events.db", **options)


def amounts(events: list[Event]) -> list[int]:
    return [e.args["value"] for e in events if e.key == ("MusterToken", "Transfer")]
