"""The watch over a real chain and a service that can fail: what it raises, serves to Prometheus and posts."""

import errno
import hashlib
import hmac
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import pytest

from chain.indexer.projection import Projection
from chain.indexer.records import Account, ChallengeOutcome, Dispute, NodeChallenge, Seat, Slash
from chain.indexer.state import State
from protocol import VERSION
from protocol.errors import ConfigError
from runtime import watch
from runtime.diagnose import Lookout, ServiceFacts, WatchConfig, Webhook
from runtime.home_status import log_of
from runtime.watch import CLEAR_AFTER, EVENTS, Outbox, Watcher, WatchMemory, news, pause, post, with_news
from tests.conftest import Deployed, free_port
from tests.orchestrator.chain import CHEAT, NODE, OWNER, VOTER, ScriptedChain
from tests.runtime.test_diagnose import STATE, WELL, config
from tests.storage.mirror import mirror, redirect_to, send

ADDRESS = str(NODE.address)


class FailingService:
    """Answers what a pool's service does, or `statuses` in its place; takes webhooks at /hook."""

    def __init__(self) -> None:
        self.documents: dict[str, Any] = {
            "/health": {"ok": True, "version": VERSION},
            "/ready": {"problems": []},
            "/v1/status": {"phase": "training"},
            f"/v1/nodes/{ADDRESS}": {"state": "healthy", "phase": "generating", "metrics": {"made": 1.0}},
        }
        self.statuses: dict[str, int] = {}
        self.posted: list[dict[str, Any]] = []
        self.opened = ExitStack()
        self.url = self.opened.enter_context(mirror(self.answer))

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        if handler.command == "POST":
            self.posted.append(json.loads(handler.rfile.read(int(handler.headers["Content-Length"]))))
            send(handler, 200)
            return
        status = self.statuses.get(handler.path, 200 if handler.path in self.documents else 404)
        send(handler, status, json.dumps(self.documents.get(handler.path, {})).encode())

    def close(self) -> None:
        self.opened.close()


@pytest.fixture
def service() -> Iterator[FailingService]:
    running = FailingService()
    yield running
    running.close()


def watch_config(deployed: Deployed, service: FailingService, home: Path, **more: object) -> WatchConfig:
    secret = home / "secret"
    secret.write_text("0123456789abcdef")
    secret.chmod(0o600)
    values = {
        "home": home,
        "deployment": deployed.folder / "deployment.json",
        "rpc": [deployed.chain.url],
        "pool": 1,
        "orchestrator": service.url,
        "node": ADDRESS,
        "accounts": {"governor": str(deployed.governance.address)},
        "folders": {"home": home},
        "free_gib": 0,
        "listen": "",
        "webhooks": [{"url": f"{service.url}/hook", "secret_file": secret}],
    }
    return WatchConfig.model_validate(values | more)


Watching = Callable[..., Watcher]


@pytest.fixture
def watching(deployed: Deployed, service: FailingService, tmp_path: Path) -> Watching:
    """A watcher over both, with these changes of its configuration."""
    return lambda **more: Watcher(watch_config(deployed, service, tmp_path, **more))


def raised(watcher: Watcher, deployed: Deployed) -> set[str]:
    """The alarms after the next block and look."""
    deployed.chain.mine()
    watcher.once()
    return set(watcher.memory.raised)


def test_each_fault_is_raised_by_the_next_look_and_over_once_it_is_gone(
    deployed: Deployed, service: FailingService, watching: Watching
) -> None:
    watcher = watching()
    assert raised(watcher, deployed) == set()
    assert watcher.facts.transactions_left["governor"] > 1000

    service.statuses |= {"/ready": 503, "/v1/status": 500, f"/v1/nodes/{ADDRESS}": 500}
    assert raised(watcher, deployed) == {"database_lost"}, "a service without its database can say little else"
    service.statuses.clear()
    service.documents["/ready"] = {"problems": ["relay: the key has no ETH for gas"]}
    assert raised(watcher, deployed) == {"database_lost", "service_trouble"}
    service.documents["/ready"] = {"problems": []}
    for _ in range(CLEAR_AFTER):
        last = raised(watcher, deployed)
    assert last == set()

    deployed.chain.fund(deployed.governance.address, 1)
    assert raised(watcher, deployed) == {"gas_low"}
    deployed.chain.fund(deployed.governance.address)
    service.documents[f"/v1/nodes/{ADDRESS}"]["state"] = "dead"
    assert raised(watcher, deployed) == {"gas_low", "process_gone"}

    watcher.outbox.deliver(watcher.facts.now)
    told = [(one["event"], one.get("alarm")) for one in service.posted]
    assert told == [
        ("database_lost", None),
        ("service_trouble", None),
        ("alarm_over", "database_lost"),
        ("alarm_over", "service_trouble"),
        ("gas_low", None),
        ("process_gone", None),
    ]
    assert service.posted[0]["hint"]
    again = watching()
    assert set(again.memory.raised) == {"gas_low", "process_gone"}, "a restart tells nothing twice"


def test_a_process_that_is_killed_is_named_by_the_next_look(
    deployed: Deployed, service: FailingService, watching: Watching, tmp_path: Path
) -> None:
    home = tmp_path / "worker"
    log_of(home).parent.mkdir(parents=True)
    log_of(home).write_text("INFO claim\nERROR the GPU has fallen off the bus\n")
    watcher = watching(process=home)
    with working_in(home) as process:
        assert raised(watcher, deployed) == set()
        process.kill()
        process.wait()
        assert raised(watcher, deployed) == {"process_gone"}, "while the service still says: healthy"
        watcher.outbox.deliver(watcher.facts.now)
        assert "the GPU has fallen off the bus" in service.posted[0]["what"]
    with working_in(home):
        for _ in range(CLEAR_AFTER):
            last = raised(watcher, deployed)
        assert last == set()


@contextmanager
def working_in(home: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that keeps its chain events in `home`, as every role does."""
    program = f"""
from pathlib import Path
from chain.indexer.store import EventStore
store = EventStore(Path({str(home)!r}) / "chain" / "events.sqlite", {{}})
print("open", flush=True)
input()
"""
    order = [sys.executable, "-c", program]
    with subprocess.Popen(order, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield process
        process.kill()


def test_a_chain_and_a_service_that_are_gone_are_named_and_come_back(
    deployed: Deployed, service: FailingService, watching: Watching
) -> None:
    watcher = watching()
    watcher.once()
    service.close()
    watcher.once()
    assert set(watcher.memory.raised) == {"service_lost"}
    assert service.url in watcher.facts.service_error
    deployed.chain.kill()
    watcher.once()
    assert set(watcher.memory.raised) == {"chain_lost", "service_lost"}
    assert "does not answer" in watcher.facts.chain_error


def test_a_service_that_answers_nonsense_is_lost_not_a_crash(service: FailingService, watching: Watching) -> None:
    answers: list[Any] = [None, [], {"version": 7}, "x"]
    for nonsense in answers:
        service.documents["/ready"] = nonsense
        watcher = watching()
        watcher.once()
        assert set(watcher.memory.raised) == {"service_lost"}, nonsense
        assert "answers what no service does" in watcher.facts.service_error


def test_an_owner_is_told_that_a_guard_stopped_the_trainer(service: FailingService, watching: Watching) -> None:
    phase = "stopped: training has become unstable"
    service.documents["/v1/dashboard"] = {"others": [{"role": "trainer", "phase": phase}]}
    for owner in (False, True):
        watcher = watching(node=None, owner=owner)
        watcher.once()
        assert ("training_unstable" in watcher.memory.raised) is owner


def test_gauges_are_served_and_a_taken_port_is_named(service: FailingService, watching: Watching) -> None:
    listen = f"127.0.0.1:{free_port()}"
    watcher = watching()
    service.statuses["/ready"] = 503
    watcher.once()
    close = watch.serve_gauges(listen, watcher)
    try:
        text = httpx.get(f"http://{listen}/metrics", trust_env=False, timeout=60).text
        assert 'muster_watch_alarm{alarm="database_lost"} 1.0' in text
        assert 'muster_watch_alarm{alarm="gas_low"} 0.0' in text
        assert "muster_watch_letters 1.0" in text
        with pytest.raises(ConfigError, match=r"`listen` .*in use"):
            watch.serve_gauges(listen, watcher)
    finally:
        close()


def test_a_deployment_of_another_chain_is_refused(deployed: Deployed, watching: Watching, tmp_path: Path) -> None:
    other = deployed.deployment.model_copy(update={"chain_id": 5})
    path = tmp_path / "other.json"
    path.write_text(other.model_dump_json())
    with pytest.raises(ConfigError):
        watching(deployment=path).once()


HERS, OTHERS = str(NODE.address), str(CHEAT.address)


def state_of(scripted: ScriptedChain) -> State:
    """Our node was slashed and ejected, so was another; a seat lost; files of both are disputed."""
    scripted.submit(NODE, 0)
    scripted.submit(CHEAT, 0)
    seen = Projection(scripted).state
    state = State(head=9, pools=seen.pools, submissions=seen.submissions)
    state.seats[0] = Seat(0, str(VOTER.address), str(VOTER.address), 10, 1)
    for number, node in enumerate((HERS, OTHERS)):
        state.slashes.append(Slash("node", node, 1, number, 4, 10**9, 1, 1, f"0x{number}"))
        state.accounts[1, node] = Account(1, node, node, ejected=True, eject_code=4, eject_sequence=number)
        state.disputes[1, number] = Dispute(1, number, str(OWNER.address), 0, 5, 1, resolved=node == HERS)
    state.slashes.append(Slash("seat", "0", 1, 0, 0, 10**9, 1, 1, "0x9"))
    return state


def keys(state: State, **who: object) -> set[str]:
    """Without the transactions of slashes."""
    found = [item.key for item in news(config(**who), state)]
    return {key.rpartition(":")[0] if key.startswith("slashed") else key for key in found}


EVERYBODY = {"node": None, "seats_of": str(VOTER.address), "owner": True}


@pytest.mark.parametrize(
    ("who", "told"),
    [
        ({"node": HERS}, {f"slashed:node:{HERS}:1:0", f"ejected:{HERS}:0", "disputed:0", "decided:0"}),
        ({"node": None, "seats_of": str(VOTER.address)}, {"slashed:seat:0:1:0"}),
        (EVERYBODY | {"pool": 2, "seats_of": None}, set()),
    ],
    ids=["an operator, of its own node", "a validator, of its own seats", "the owner of another pool, of nothing"],
)
def test_everybody_is_told_of_what_is_theirs(scripted: ScriptedChain, who: dict[str, Any], told: set[str]) -> None:
    state = state_of(scripted)
    assert keys(state, **who) == told
    assert len(keys(state, **EVERYBODY | {"seats_of": None})) == 8, "the pool's owner is told of everybody"


def node_challenge(number: int, node: str, outcome: ChallengeOutcome, pool: int = 1) -> NodeChallenge:
    files, slashed = (3, 4, 7), 2 * 10**9 if outcome is ChallengeOutcome.UPHELD else 0
    challenge = NodeChallenge(number, pool, node, str(OWNER.address), files, b"", 5, [number], 1, 1, outcome)
    return replace(challenge, slashed=slashed)


def test_node_challenges_are_told_when_opened_and_when_decided_to_the_accused_and_the_owner() -> None:
    upheld, refuted, still = ChallengeOutcome.UPHELD, ChallengeOutcome.REFUTED, ChallengeOutcome.OPEN
    challenges = (
        node_challenge(1, HERS, upheld), node_challenge(2, HERS, still), node_challenge(3, OTHERS, refuted),
        node_challenge(4, HERS, upheld, pool=2),
    )  # fmt: skip
    state = State(head=9, challenges={one.challenge: one for one in challenges})
    own = list(news(config(node=HERS), state))
    assert [(one.key, one.event) for one in own] == [
        ("challenge:1", "challenge_opened"), ("challenge_decided:1", "challenge_decided"),
        ("challenge:2", "challenge_opened"),
    ]  # fmt: skip
    assert own[0].what == f"{OWNER.address} accuses node {HERS} by 3 files from 3 to 7: node challenge 1"
    assert own[1].what == (
        f"node challenge 1 against {HERS} is upheld, 2 tokens of its stake are gone (muster verify challenge 1)"
    )
    everybodys = {one.key: one.what for one in news(config(node=None, owner=True), state)}
    decided = {"challenge_decided:1", "challenge_decided:3"}
    assert set(everybodys) == {"challenge:1", "challenge:2", "challenge:3"} | decided
    refuted_words = f"node challenge 3 against {OTHERS} is refuted (muster verify challenge 3)"
    assert everybodys["challenge_decided:3"] == refuted_words
    assert {one.event for one in own} <= set(EVENTS)
    # A new challenge after the first look is news, and once.
    memory, _ = with_news(WatchMemory(), news(config(node=HERS), State(challenges={1: challenges[0]})))
    memory, fresh = with_news(memory, news(config(node=HERS), state))
    assert [one.key for one in fresh] == ["challenge:2"]


def test_what_happened_before_the_first_look_is_no_news_and_nothing_is_told_twice(scripted: ScriptedChain) -> None:
    state = state_of(scripted)
    last, earlier = state.slashes.pop(), state.slashes
    who = config(**EVERYBODY)
    memory, fresh = with_news(WatchMemory(), news(who, state))
    assert fresh == []
    state.slashes = [*earlier, last]
    memory, fresh = with_news(memory, news(who, state))
    assert [item.event for item in fresh] == ["slashed"]
    memory, fresh = with_news(WatchMemory.model_validate_json(memory.model_dump_json()), news(who, state))
    assert fresh == []


SECRET = b"0123456789abcdef0123456789abcdef"
NOW = 1_000_000.0


def hook(folder: Path, url: str = "http://hook", *events: str, mode: int = 0o600, secret: bytes = SECRET) -> Webhook:
    path = folder / "secret"
    path.write_bytes(secret + b"\n")
    path.chmod(mode)
    return Webhook(url=url, secret_file=path, events=events)


class Receiver:
    """Answers as it is told, and remembers."""

    def __init__(self, *answers: int | Exception) -> None:
        self.answers, self.taken = list(answers), list[tuple[bytes, Mapping[str, str]]]()

    def __call__(self, url: str, body: bytes, headers: Mapping[str, str]) -> int:
        answer = self.answers.pop(0) if self.answers else 200
        if isinstance(answer, Exception):
            raise answer
        if answer == 200:
            self.taken.append((body, headers))
        return answer


def test_a_letter_is_signed_over_time_and_body(tmp_path: Path) -> None:
    receiver = Receiver()
    box = Outbox(tmp_path / "outbox.json", (hook(tmp_path),), receiver)
    box.put("gas_low", {"what": "no gas"}, NOW)
    box.deliver(NOW + 2)
    ((body, headers),) = receiver.taken
    document = json.loads(body)
    assert document == {"event": "gas_low", "id": headers["Muster-Delivery"], "time": int(NOW), "what": "no gas"}
    expected = hmac.new(SECRET, f"{int(NOW) + 2}.".encode() + body, hashlib.sha256).hexdigest()
    assert headers["Muster-Signature"] == f"t={int(NOW) + 2},v1={expected}"
    assert watch.signature(SECRET, 1, b"x") != watch.signature(SECRET, 2, b"x")
    assert box.waiting == 0


def test_what_is_not_taken_is_kept_over_restarts_and_tried_ever_more_seldom(tmp_path: Path) -> None:
    path, hooks = tmp_path / "outbox.json", (hook(tmp_path),)
    failing = Receiver(500, httpx.ConnectError("refused"), 302)
    box = Outbox(path, hooks, failing)
    box.put("ejected", {}, NOW)
    now = NOW
    for tries in (1, 2, 3):
        box.deliver(now)
        (letter,) = box._letters.values()
        assert (letter.tries, letter.due) == (tries, now + pause(tries))
        box.deliver(letter.due - 0.1)
        assert next(iter(box._letters.values())).tries == tries, "it was not due"
        now = letter.due
    assert [pause(n) for n in (1, 2, 3, 11, 5000)] == [5.0, 10.0, 20.0, 3600.0, 3600.0]
    assert path.stat().st_mode & 0o777 == 0o600
    taking = Receiver()
    later = Outbox(path, hooks, taking)
    later.deliver(now)
    assert json.loads(taking.taken[0][0])["event"] == "ejected"
    assert Outbox(path, hooks, taking).waiting == 0


def test_the_outbox_is_bounded_and_gives_up_in_the_end(tmp_path: Path) -> None:
    path, hooks = tmp_path / "outbox.json", (hook(tmp_path),)
    box = Outbox(path, hooks, Receiver(*[500] * (watch.MOST + 10)))
    box._write = lambda: None  # type: ignore[method-assign]  # two thousand fsyncs say nothing
    for number in range(watch.MOST + 5):
        box.put("slashed", {"number": number}, NOW)
    assert (box.waiting, box.dropped) == (watch.MOST, 5)
    assert json.loads(next(iter(box._letters.values())).body)["number"] == 5
    box.deliver(NOW + watch.GIVE_UP_SECONDS + 1)
    assert (box.waiting, box.dropped) == (0, watch.MOST + 5)


def test_a_webhook_gets_only_the_events_that_it_names(tmp_path: Path) -> None:
    box = Outbox(tmp_path / "outbox.json", (hook(tmp_path, "http://hook", "ejected"),), Receiver())
    box.put("gas_low", {}, NOW)
    assert box.waiting == 0
    box.put("ejected", {}, NOW)
    assert box.waiting == 1
    other = Outbox(tmp_path / "outbox.json", (hook(tmp_path, "http://elsewhere"),), Receiver())
    assert other.waiting == 0, "nobody takes it any more"


@pytest.mark.parametrize(
    ("mode", "secret", "says"), [(0o644, SECRET, "can be read by others"), (0o600, b"short", "has 5 bytes")]
)
def test_a_secret_that_is_none_is_refused(tmp_path: Path, mode: int, secret: bytes, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Outbox(tmp_path / "outbox.json", (hook(tmp_path, mode=mode, secret=secret),), Receiver())


def test_an_event_or_url_that_there_is_not_is_refused(tmp_path: Path) -> None:
    hooks = (hook(tmp_path, "http://hook", "gas-low"),)
    with pytest.raises(ConfigError, match=r"no event gas-low; there are: slashed, "):
        Watcher(config(home=tmp_path, webhooks=hooks))
    with pytest.raises(ValueError, match="no http or https URL"):
        Webhook(url="file:///etc/passwd", secret_file=tmp_path)


def test_posting_follows_no_redirect() -> None:
    asked: list[str] = []

    def inside(handler: BaseHTTPRequestHandler) -> None:
        asked.append(handler.path)
        send(handler, 200)

    with mirror(inside) as target, mirror(redirect_to(target, 307)) as outside:
        assert post(outside, b"{}", {}) == 307
        assert asked == []
        assert post(target, b"{}", {}) == 200


def test_a_receiver_that_is_gone_is_an_error_of_http() -> None:
    with pytest.raises(httpx.HTTPError):
        post("http://127.0.0.1:1/", b"{}", {})


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "no space left on device")


def test_a_full_disk_is_posted_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "write_atomic", full)
    receiver = Receiver(200)
    watcher = Watcher(config(home=tmp_path, every_seconds=0.1))
    watcher.outbox = box = Outbox(tmp_path / "outbox.json", (hook(tmp_path),), receiver)
    monkeypatch.setattr(watcher.lookout, "look", lambda: replace(WELL, free={"home": 0}))
    watcher.once()
    watcher.once()
    box.deliver(NOW)
    assert [json.loads(body)["event"] for body, _ in receiver.taken] == ["disk_full"]


def test_endpoints_that_refuse_us_are_a_lost_chain_once_one_has_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(now: float) -> None:
        raise ConfigError("the endpoint answers 401", "name another")

    lookout = Lookout(config(home=tmp_path, orchestrator="http://127.0.0.1:1", folders={}))
    monkeypatch.setattr(lookout, "_look_at_chain", refuse)
    with pytest.raises(ConfigError, match="401"):
        lookout.look()
    lookout.state = STATE
    monkeypatch.setattr("runtime.diagnose.look_at_service", lambda *_, **__: ServiceFacts())
    assert lookout.look().chain_error == "the endpoint answers 401"


def test_one_bad_letter_does_not_hold_up_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "MOST", 10)
    receiver = Receiver(500, 200)
    box = Outbox(tmp_path / "outbox.json", (hook(tmp_path),), receiver)
    for event in ("gas_low", "stake_low"):
        box.put(event, {}, NOW)
    box.deliver(NOW)
    assert [json.loads(body)["event"] for body, _ in receiver.taken] == ["stake_low"]
    assert box.waiting == 1
