"""`status` answers five questions for a node, a validator and a pool's owner, whichever part is down."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from chain.indexer.records import Lane, Seat, Slash, Step
from cli.answers import (
    NEXT_OF_NODE,
    QUESTIONS,
    FiveAnswers,
    NodeLook,
    NodeStage,
    PoolLook,
    SeatsLook,
    StatusPart,
    node_answers,
    pool_answers,
    seats_answers,
)
from cli.diagnose import LastSeen, look_at_process, look_at_service
from cli.views import node_view, open_rounds, pool_view, seat_view
from protocol.api.endpoints import STATUS
from protocol.verdict import Code
from runtime.presence import last_line
from tests.cli.muster import CLOSED, Muster
from tests.cli.test_views import NODE, OWNER, drawn, make_state, make_sub
from tests.conftest import Deployed

NOW = 1_800_000_000.0
CHAIN_NOW = 2000
UP = (StatusPart("chain"), StatusPart("service"), StatusPart("process"))
CHAIN_DOWN = StatusPart("chain", "http://rpc does not answer", NOW - 60)
SERVICE_DOWN = StatusPart("service", "http://pool does not answer", NOW - 120)
PROCESS_DOWN = StatusPart("process", "it does not run on this machine", NOW - 300)
ENTRY: dict[str, Any] = {"state": "healthy", "last_seen": NOW - 3, "phase": "generating", "at_step": 6}
PROCESS: dict[str, Any] = {"log": "file 3 of step 6", "unsubmitted": 2}


def node_look(**changes: Any) -> NodeLook:
    """A node with files: accepted and locked, accepted and vested, refused and disputable, pending."""
    rejected = make_sub(2, code=Code.REJECT_WEIGHTS, decided_time=1900, final_time=2100)
    state = make_state(
        make_sub(0, code=Code.ACCEPT, decided_time=1000, final_time=1100),
        make_sub(1, code=Code.ACCEPT, decided_time=1950, final_time=2050),
        rejected,
        make_sub(3),
    )
    account = state.accounts[1, NODE]
    account.units_awarded = account.units_earned = 200
    account.units_pending = 100
    for number, sub in enumerate(state.submissions_of(1, NODE)[:2]):
        sub.cumulative = 100 * (number + 1)
    chain = {
        "view": node_view(state, NODE, CHAIN_NOW), "now": CHAIN_NOW, "wei": 10**18, "gas_price": 10**6,
        "pool": 1, "status": "open", "least": 500, "service": "",
    }  # fmt: skip
    return replace(NodeLook(NODE, NOW, UP, chain, dict(ENTRY), dict(PROCESS)), **changes)


def changed(look: NodeLook, **facts: Any) -> NodeLook:
    assert look.chain is not None
    return replace(look, chain=look.chain | facts)


def flat(lines: tuple[str, ...]) -> str:
    return "\n".join(lines)


def test_a_node_is_answered_five_questions_in_order() -> None:
    answers = node_answers(node_look())
    assert f"node {NODE} of operator {OWNER}" in answers.seen[0]
    assert answers.seen[1:] == ("the chain: pool 1 (open): member", "the service: healthy, last heartbeat 3 s ago")
    assert answers.doing[:3] == (
        "the process runs on this machine",
        "its newest message: file 3 of step 6",
        "it reported to the service: generating, policy step 6",
    )
    assert "2 files in its journal" in answers.doing
    assert (
        "earned 0.000002 tokens, paid 0, claimable now 0.000001, locked 0.000001, not judged yet" in answers.earned[0]
    )
    assert "(in 50 s)" in answers.earned[1]
    assert answers.refused == ("file 2 of pool 1: reject: weights",)
    (todo,) = answers.todo
    assert todo.startswith("file 2 can be disputed until ")
    assert todo.endswith("muster node dispute --pool 1 --file 2")
    text = answers.text()
    assert sorted(QUESTIONS.values(), key=text.index) == list(QUESTIONS.values())
    assert list(answers.document()) == [*QUESTIONS, "down"]


def test_without_the_chain_a_node_is_told_what_was_true_and_since_when() -> None:
    parts = (CHAIN_DOWN, *UP[1:])
    answers = node_answers(node_look(parts=parts))
    for lines in (answers.seen, answers.earned, answers.refused):
        assert "(as of 60 s ago: the chain is down)" in lines
    assert answers.todo[0].startswith("reach the chain: name another RPC")
    never = node_answers(node_look(parts=parts, chain=None))
    assert never.seen[0].startswith("unknown: the chain is down since 20")
    assert never.earned == never.refused == (never.seen[0],)
    assert never.seen[-1] == "the service: healthy, last heartbeat 3 s ago"
    assert never.document()["down"] == [{"part": "chain", "why": CHAIN_DOWN.down, "since": NOW - 60}]


def test_without_the_service_a_node_is_told_by_the_chain() -> None:
    answers = node_answers(node_look(parts=(UP[0], SERVICE_DOWN, UP[2])))
    assert answers.seen[-1].startswith("the service is down since 20")
    assert "it reported to the service" not in flat(answers.doing)
    assert answers.earned == node_answers(node_look()).earned
    assert "nothing about the service: the running process waits for it" in flat(answers.todo)
    unknown = StatusPart("service", "no URL is named")
    assert (
        "since before this machine first looked: no URL"
        in node_answers(node_look(parts=(UP[0], unknown, UP[2]))).seen[-1]
    )


def test_without_the_process_a_node_is_told_to_start_it() -> None:
    answers = node_answers(node_look(parts=(*UP[:2], PROCESS_DOWN)))
    assert answers.doing[0].startswith("the process is down since 20")
    assert "its newest message" not in flat(answers.doing)
    assert "muster node up" in flat(answers.todo)
    assert "muster node claim --pool 1" in flat(answers.todo)


def test_with_everything_down_there_are_still_five_answers() -> None:
    parts = (CHAIN_DOWN, SERVICE_DOWN, PROCESS_DOWN)
    answers = node_answers(NodeLook(NODE, NOW, parts, None, None, None))
    assert all(getattr(answers, key) for key in QUESTIONS)
    assert [one["part"] for one in answers.document()["down"]] == ["chain", "service", "process"]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"view": None}, "register and join: muster node up"),
        ({"least": 600}, "add 0.0000001 tokens to the stake: muster node join --stake"),
        ({"wei": 0}, "gas for fewer than 20 files is left: send 0.000001 ETH to"),
    ],
)
def test_what_a_node_lacks_is_said_with_its_cure(facts: dict[str, Any], words: str) -> None:
    assert words in flat(node_answers(changed(node_look(), **facts)).todo)


@pytest.mark.parametrize(
    ("standing", "words"),
    [
        ("ejected (reject: weights, submission 2)", "a new one needs a new key"),
        ("removed by the pool's owner", "ask the pool's owner why"),
        ("frozen until a rejection is final", "until the refused file is final"),
    ],
)
def test_what_a_nodes_standing_asks_for(standing: str, words: str) -> None:
    look = node_look()
    look.accounts[0]["standing"] = standing
    assert words in flat(node_answers(look).todo)


@pytest.mark.parametrize(
    ("stage", "view", "standing", "status", "words"),
    [
        (NodeStage.UNREGISTERED, None, None, "open", "register and join: muster node up"),
        (NodeStage.NOT_JOINED, {"pool": 0}, None, "open", "join: muster node up, or muster node join --pool 1"),
        (NodeStage.MEMBER, {}, "member", "open", "muster node dispute"),
        (NodeStage.RUN_OVER, {}, "member", "closing", "muster node claim, then muster node leave"),
        (NodeStage.RUN_OVER, {}, "member", "settled", "muster node claim, then muster node leave"),
        (NodeStage.EJECTED, {}, "ejected (reject: weights, submission 2)", "open", "muster node leave"),
        (NodeStage.REMOVED, {}, "removed by the pool's owner", "open", "muster node leave"),
        (NodeStage.LEFT_LOCKED, {"pool": 0, "withdrawable": False}, "left", "open", "run muster node leave again"),
        (NodeStage.LEFT_FREE, {"pool": 0, "withdrawable": True}, "left", "open", "back: muster node leave"),
        (NodeStage.WITHDRAWN, {"pool": 0, "stake": 0}, "left", "open", "the stake is withdrawn"),
    ],
)
def test_every_stage_of_a_node_has_a_next_step(
    stage: NodeStage, view: dict[str, Any] | None, standing: str | None, status: str, words: str
) -> None:
    look = changed(node_look(), status=status)
    assert look.chain is not None
    accounts = [look.accounts[0] | {"standing": standing}] if standing else []
    look.chain["view"] = None if view is None else look.chain["view"] | {"accounts": accounts} | view
    assert look.stage is stage
    assert words in flat(node_answers(look).todo)


def test_no_stage_of_a_node_is_left_out() -> None:
    assert set(NodeStage) == set(NEXT_OF_NODE)


def test_a_process_that_the_service_does_not_hear_is_named() -> None:
    for entry in (None, ENTRY | {"state": "dead"}):
        assert "the service does not hear it" in flat(node_answers(node_look(service=entry)).todo)
    assert "never heard of this address" in node_answers(node_look(service=None)).seen[-1]


def seats_look(**changes: Any) -> SeatsLook:
    state = make_state(make_sub())
    state.seats[5] = Seat(5, OWNER, NODE, 90, 1, earned=40, penalised=10, groups=(1,))
    state.seats[6] = Seat(6, OWNER, NODE, 100, 1, left_epoch=3, release_at=1990)
    state.slashes.append(Slash("seat", "5", 1, 0, Code.REJECT_WEIGHTS, 10, 9, 1400, "0xt"))
    state.lanes[1, 0] = Lane(1, 0, 5, 5, [drawn(commits={1: bytes(32)})], [0])
    chain = {
        "seats": [seat_view(state, seat, CHAIN_NOW) for seat in state.seats.values()], "now": CHAIN_NOW, "epoch": 9,
        "bond": 100, "gas_price": 10**6, "voters": {NODE: 0}, "open": list(open_rounds(state, 5)), "service": "",
    }  # fmt: skip
    return replace(SeatsLook(OWNER, NOW, UP, chain, dict(ENTRY), dict(PROCESS)), **changes)


def test_a_validator_is_answered_five_questions() -> None:
    answers = seats_answers(seats_look())
    assert answers.seen[0] == "the chain: 1 of 2 seats active, they may be drawn for pools 1"
    assert answers.doing[-1] == "seat 5: lane 0 of pool 1: committed, to be opened"
    assert "fees 0.00000004 tokens, penalties 0.00000001" in answers.earned[0]
    assert answers.earned[1] == "the bond of seat 6, 0.0000001 tokens, unlocks now"
    assert answers.refused == (
        "seat 5 lost 0.00000001 tokens at file 0 of pool 1: it accepted a file that was reject: weights",
    )
    todo = flat(answers.todo)
    assert "seat 5 lacks 0.00000001 tokens of its bond: muster validator bond --seat 5" in todo
    assert "take the bond of seat 6: muster validator leave --seat 6" in todo
    assert "gas for fewer than 10 lanes is left" in todo


def test_a_validator_is_answered_whichever_part_is_down() -> None:
    no_chain = seats_answers(seats_look(parts=(CHAIN_DOWN, *UP[1:])))
    assert "(as of 60 s ago: the chain is down)" in no_chain.earned
    assert "a drawn seat that cannot vote loses money" in no_chain.todo[0]
    never = seats_answers(seats_look(parts=(CHAIN_DOWN, *UP[1:]), chain=None))
    assert never.earned == never.refused == never.seen[:1]
    no_service = seats_answers(seats_look(parts=(UP[0], SERVICE_DOWN, UP[2])))
    assert no_service.seen[-1].startswith("the service is down")
    no_process = seats_answers(seats_look(parts=(*UP[:2], PROCESS_DOWN)))
    assert "start the process at once" in flat(no_process.todo)
    nothing = seats_answers(SeatsLook(OWNER, NOW, (CHAIN_DOWN, SERVICE_DOWN, PROCESS_DOWN), None, None, None))
    assert all(getattr(nothing, key) for key in QUESTIONS)


RUN: dict[str, Any] = {
    "phase": "training", "step": 3, "steps": 6, "chain_error": "",
    "in_flight": {"leased": 1, "pending": 2, "accepted": 3},
    "waits": [{"who": "trainer", "what": "files", "since": NOW - 9}],
}  # fmt: skip


def pool_look(**changes: Any) -> PoolLook:
    state = make_state(make_sub(0, code=Code.MALFORMED), make_sub(1, code=Code.ACCEPT))
    state.pools[1].steps.append(Step(0, bytes(32), bytes(32), 1, 1, 1, ""))
    chain = {
        "view": pool_view(state, 1, CHAIN_NOW), "free": 50, "file": 10, "now": CHAIN_NOW, "settle_at": 0,
        "refused": [{"sequence": 0, "node": NODE, "reason": "malformed"}], "slashed": [],
    }  # fmt: skip
    return replace(PoolLook(1, NOW, UP[:2], chain, dict(RUN)), **changes)


def test_an_owner_is_answered_five_questions() -> None:
    answers = pool_answers(pool_look())
    assert answers.seen[0] == "the chain: pool 1 is open, members: 1 node; 0 of 11 needed seats judge it"
    assert answers.doing[0] == "working on policy step 0"
    assert answers.doing[1:] == (
        "the service: training, policy step 3 of 6, files: 1 leased, 2 pending, 3 accepted",
        "trainer is waiting for files (9 s ago)",
    )
    assert "100 output tokens were accepted" in answers.earned[0]
    assert answers.refused == ("1 malformed", f"file 0 of {NODE}: malformed")
    todo = flat(answers.todo)
    warned = pool_answers(pool_look(no_null_model="the pool's configuration names no null model"))
    assert warned.seen[-1].startswith("WARNING: the pool's configuration names no null model: cheats too small")
    for words in ("name the service's key", "11 more seats must judge the pool", "buys 5 more of the largest files"):
        assert words in todo


def test_an_owner_is_answered_whichever_part_is_down() -> None:
    no_chain = pool_answers(pool_look(parts=(CHAIN_DOWN, UP[1])))
    assert "(as of 60 s ago: the chain is down)" in no_chain.earned
    never = pool_answers(pool_look(parts=(CHAIN_DOWN, UP[1]), chain=None))
    assert never.earned == never.refused == never.seen[:1]
    assert "the service: training" in flat(never.doing)
    no_service = pool_answers(pool_look(parts=(UP[0], SERVICE_DOWN)))
    assert "the service: training" not in flat(no_service.doing)
    assert "bring the service back: muster pool serve" in flat(no_service.todo)
    nothing = pool_answers(PoolLook(1, NOW, (CHAIN_DOWN, SERVICE_DOWN), None, None))
    assert all(getattr(nothing, key) for key in QUESTIONS)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home; nothing of the developer's is seen."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    return tmp_path


def test_what_a_part_said_last_is_remembered() -> None:
    assert LastSeen("chain", "a").recall() == (0.0, None)
    LastSeen("chain", "a").keep({"wei": 10**30})
    seen, facts = LastSeen("chain", "a").recall()
    assert abs(seen - time.time()) < 60
    assert facts == {"wei": 10**30}
    assert LastSeen("chain", "b").recall() == (0.0, None)
    for path in (Path.home() / ".cache" / "muster" / "status").iterdir():
        path.write_text("[1")
    assert LastSeen("chain", "a").recall() == (0.0, None)


def test_a_service_that_is_down_or_not_named_is_a_part_that_is_down() -> None:
    assert "does not answer" in look_at_service(CLOSED, STATUS).part.down
    assert "no URL is named" in look_at_service(None, STATUS).part.down


def test_a_running_process_holds_its_lock(tmp_path: Path) -> None:
    home = tmp_path / "operator"
    assert "not known" in look_at_process(None, "worker").part.down
    assert "never started" in look_at_process(home, "worker").part.down
    (home / "chain" / "journal").mkdir(parents=True)
    (home / "chain" / "journal" / "1.json").write_text("{}")
    (home / "logs").mkdir()
    (home / "logs" / "worker.log").write_text("one\n\x1b[31mtwo\n")
    lock = FileLock(home / "chain" / "events.sqlite.lock")
    lock.acquire()
    running = look_at_process(home, "worker")
    assert running.part.down == ""
    assert running.facts == {"log": "?[31mtwo", "unsubmitted": 1, "unserved": {}, "retained": {}, "engines": []}
    lock.release()
    stopped = look_at_process(home, "worker").part
    assert "does not run" in stopped.down
    assert abs(stopped.seen - time.time()) < 60
    assert last_line(tmp_path / "none") == ""


def test_the_commands_answer_while_chain_and_service_are_down(shared_suite: Deployed, tmp_path: Path) -> None:
    up, down = (Muster(tmp_path, shared_suite.folder, url) for url in (shared_suite.chain.url, CLOSED))
    for order in (("node", "status", "--node", OWNER), ("validator", "status", "--address", OWNER)):
        blind = down.ok(*order, "--json").json
        assert blind["seen"][0].startswith("unknown: the chain is down since before")
        seeing = up.ok(*order, "--json").json
        assert seeing["seen"][0].startswith("no: ")
        assert set(QUESTIONS) <= set(seeing)
    assert "the chain is down" in down.ok("pool", "status", "--pool", 1).out


def test_a_service_of_another_version_is_named_with_its_cure() -> None:
    heard = ENTRY | {"version": "0.1.0"}
    for version, wanted in (("", False), ("0.1.0", False), ("9.9.9", True)):
        node, seats = node_look(version=version, service=heard), seats_look(version=version, service=heard)
        for todo in (node_answers(node).todo, seats_answers(seats).todo):
            said = "the pool's service is muster 9.9.9, this process muster 0.1.0: upgrade the older" in flat(todo)
            assert said is wanted


def test_answers_are_the_same_five_for_everybody() -> None:
    every = [node_answers(node_look()), seats_answers(seats_look()), pool_answers(pool_look())]
    assert len({tuple(one.document()) for one in every}) == 1
    assert all(isinstance(one, FiveAnswers) for one in every)
