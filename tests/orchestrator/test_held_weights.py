"""Who has which policy step, by everybody's own word."""

from orchestrator.sources import AnnouncedSources
from protocol.announcements import announce
from protocol.encoding import canonical_json
from tests.orchestrator.chain import CHEAT, NODE
from tests.orchestrator.conftest import POOL, Desk
from tests.storage.mirror import mirror, send


def test_who_has_which_step(desk: Desk) -> None:
    assert desk.http.get("/v1/status").json()["held"] == []
    desk.service.sources = AnnouncedSources(POOL, True, lambda: desk.now)
    for key, step in ((NODE, 4), (CHEAT, 3)):
        beat = {"role": "worker", "weights": step}
        assert desk.post(key, "/v1/heartbeats", beat).status_code == 200
    words: list[bytes] = []
    with mirror(lambda handler: send(handler, 200, words[0])) as url:
        said = announce(NODE, POOL, url, int(desk.now) + 600, step=4).model_dump(mode="json")
        words.append(canonical_json(said))
        assert desk.post(NODE, "/v1/sources", said).status_code == 200
    desk.now += 1
    newest = {"step": 4, "nodes": 1, "validators": 0, "relays": 1}
    held = [newest, {"step": 3, "nodes": 1, "validators": 0, "relays": 0}]
    assert desk.http.get("/v1/status").json()["held"] == held
    assert desk.http.get("/v1/overview").json()["held"] == held
    assert desk.http.get(f"/v1/nodes/{NODE.address}").json()["weights"] == 4
    desk.now += 300
    assert desk.http.get("/v1/status").json()["held"] == [newest | {"nodes": 0}], "who is silent is not counted"
