"""What a process lacks, in its own words, for whoever looks after it."""

from tests.orchestrator.chain import NODE
from tests.orchestrator.conftest import Desk


def trouble(desk: Desk, phase: str, waits: list[tuple[str, float]]) -> str:
    """What the service says of the node after such a heartbeat."""
    lines = [{"what": what, "since": since} for what, since in waits]
    beat = {"role": "worker", "phase": phase, "waits": lines}
    assert desk.post(NODE, "/v1/heartbeats", beat).status_code == 200
    desk.now += 1
    found: str = desk.http.get(f"/v1/nodes/{NODE.address}").json()["trouble"]
    return found


def test_its_newest_wait_is_its_trouble(desk: Desk) -> None:
    waits = [("weights that are being fetched", 5.0), ("shard 00… came with other bytes", 9.0)]
    assert trouble(desk, "trouble", waits) == "shard 00… came with other bytes"
    assert trouble(desk, "trouble", []) == ""
    assert trouble(desk, "generating", waits) == "", "who waits is not in trouble"
