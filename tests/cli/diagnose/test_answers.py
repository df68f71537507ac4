"""`status` answers five questions for a node, a validator and a pool's owner, whichever part is down."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from chain.indexer.records import Lane, Seat, Slash, Step
from cli.diagnose.answers import (
    QUESTIONS,
    StatusLook,
    StatusPart,
    alarm_lines,
    answers_text,
    node_answers,
    pool_answers,
    seats_answers,
)
from cli.diagnose.status import LastSeen, look_around, look_at_process, look_at_service
from cli.diagnose.views import node_view, open_rounds, pool_view, seat_view
from protocol import VERSION
from protocol.api.endpoints import STATUS
from protocol.verdict import Code
from runtime.diagnose import Facts, WatchLimits, surroundings
from runtime.home_status import CRASH_MESSAGE, STALLED, last_line, log_of
from tests.cli.diagnose.test_views import NODE, OWNER, drawn, make_state, make_sub
from tests.cli.muster import CLOSED, Muster
from tests.conftest import Deployed
from tests.runtime.test_watch import ADDRESS, FailingService, service

__all__ = ["service"]
pytestmark = pytest.mark.usefixtures("home")
NOW = 1_800_000_000.0
CHAIN_NOW = 2000
GIB = 1 << 30
ENTRY: dict[str, Any] = {"state": "healthy", "last_seen": NOW - 3, "phase": "generating", "at_step": 6}
PROCESS: dict[str, Any] = {"log": "file 3 of step 6", "unsubmitted": 2}
DOWN = {
    "chain": ("http://rpc does not answer", NOW - 60),
    "service": ("http://pool does not answer", NOW - 120),
    "process": ("it does not run on this machine", NOW - 300),
}


def look(who: str, chain: dict[str, Any], service: Any = ENTRY, process: Any = PROCESS) -> StatusLook:
    parts = StatusPart("chain", chain), StatusPart("service", service), StatusPart("process", process)
    return StatusLook(who, NOW, *parts)


def down(up: StatusLook, *names: str, never: bool = False) -> StatusLook:
    """With parts that are down; `never`: they never answered."""
    for name in names:
        part, (why, seen) = getattr(up, name), DOWN[name]
        up = replace(up, **{name: replace(part, down=why, seen=seen, facts=None if never else part.facts)})
    return up


def changed(up: StatusLook, part: str = "chain", **facts: Any) -> StatusLook:
    before = getattr(up, part)
    return replace(up, **{part: replace(before, facts=before.facts | facts)})


def flat(lines: list[str]) -> str:
    return "\n".join(lines)


def node_look() -> StatusLook:
    """A node with files: accepted and locked, accepted and vested, refused and disputable, pending."""
    state = make_state(
        make_sub(0, code=Code.ACCEPT, decided_time=1000, final_time=1100),
        make_sub(1, code=Code.ACCEPT, decided_time=1950, final_time=2050),
        make_sub(2, code=Code.REJECT_WEIGHTS, decided_time=1900, final_time=2100),
        make_sub(3),
    )
    account = state.accounts[1, NODE]
    account.units_awarded = account.units_earned = 200
    account.units_pending = 100
    for number, sub in enumerate(state.submissions_of(1, NODE)[:2]):
        sub.cumulative = 100 * (number + 1)
    chain = {
        "view": node_view(state, NODE, CHAIN_NOW), "now": CHAIN_NOW,
        "pool": 1, "status": "open", "least": 500, "service": "",
    }  # fmt: skip
    return look(NODE, chain)


def test_a_node_is_answered_five_questions_in_order() -> None:
    answers = node_answers(node_look())
    assert f"node {NODE} of operator {OWNER}" in answers["seen"][0]
    assert answers["seen"][1:] == ["the chain: pool 1 (open): member", "the service: healthy, last heartbeat 3 s ago"]
    assert answers["doing"][:3] == [
        "the process runs on this machine",
        "its newest message: file 3 of step 6",
        "it reported to the service: generating, policy step 6",
    ]
    assert "2 files in its journal" in answers["doing"]
    assert (
        "earned 0.000002 tokens, paid 0, claimable now 0.000001, locked 0.000001, not judged yet"
        in answers["earned"][0]
    )
    assert "(in 50 s)" in answers["earned"][1]
    assert answers["refused"] == ["file 2 of pool 1: reject: weights"]
    (todo,) = answers["todo"]
    assert todo.startswith("file 2 can be disputed until ")
    assert todo.endswith("muster node dispute --pool 1 --file 2")
    text = answers_text(answers)
    assert sorted(QUESTIONS.values(), key=text.index) == list(QUESTIONS.values())
    assert list(answers) == [*QUESTIONS, "down"]


def test_a_node_is_told_what_is_known_whichever_part_is_down() -> None:
    assert node_answers(down(node_look(), "chain"))["todo"][0].startswith("reach the chain: name another RPC")
    never = node_answers(down(node_look(), "chain", never=True))
    assert never["seen"][0].startswith("unknown: the chain is down since 20")
    assert never["seen"][-1] == "the service: healthy, last heartbeat 3 s ago"
    assert never["down"] == [{"part": "chain", "why": DOWN["chain"][0], "since": NOW - 60}]
    unserved = node_answers(down(node_look(), "service"))
    assert unserved["seen"][-1].startswith("the service is down since 20")
    assert "it reported to the service" not in flat(unserved["doing"])
    assert unserved["earned"] == node_answers(node_look())["earned"]
    assert "nothing about the service: the running process waits for it" in flat(unserved["todo"])
    unnamed = replace(node_look(), service=StatusPart("service", None, "no URL is named"))
    assert "since before this machine first looked: no URL" in node_answers(unnamed)["seen"][-1]
    ended = node_answers(down(node_look(), "process"))
    assert ended["doing"][0].startswith("the process is down since 20")
    assert "its newest message" not in flat(ended["doing"])
    for words in ("muster node up", "muster node claim --pool 1"):
        assert words in flat(ended["todo"])


@pytest.mark.parametrize(
    ("view", "standing", "status", "words"),
    [
        (None, "", "open", "register and join: muster node up"),
        ({"pool": 0}, "", "open", "join: muster node up, or muster node join --pool 1"),
        ({"pool": 0, "stake": 200}, "", "open", "add 0.0000003 tokens to the stake"),
        ({}, "member", "open", "muster node dispute"),
        ({"stake": 400}, "member", "open", "add 0.0000001 tokens to the stake: muster node join --stake"),
        ({}, "frozen until a rejection is final", "open", "until the refused file is final"),
        ({}, "member", "closing", "muster node claim, then muster node leave"),
        ({}, "member", "settled", "muster node claim, then muster node leave"),
        ({}, "member", "finished", "muster node claim, then muster node leave"),
        ({"withdrawable": False}, "ejected (reject: weights, submission 2)", "open", "of its stake 0.0000005 tokens"),
        ({}, "ejected (reject: weights, submission 2)", "open", "a new one needs a new key"),
        ({}, "removed by the pool's owner", "open", "ask the pool's owner why"),
        ({"pool": 0, "withdrawable": False}, "left", "open", "run muster node leave again"),
        ({"pool": 0, "withdrawable": True}, "left", "open", "back: muster node leave"),
        ({"pool": 0, "stake": 0}, "left", "open", "the stake is withdrawn"),
    ],
)
def test_every_stage_of_a_node_has_a_next_step(
    view: dict[str, Any] | None, standing: str, status: str, words: str
) -> None:
    facts: dict[str, Any] = node_look().chain.facts or {}
    accounts = [facts["view"]["accounts"][0] | {"standing": standing}] if standing else []
    whole = None if view is None else facts["view"] | {"accounts": accounts} | view
    finished = status == "finished"
    shown = replace(changed(node_look(), status="open" if finished else status, view=whole), finished=finished)
    assert words.lower() in flat(node_answers(shown)["todo"]).lower()


def test_a_process_that_the_service_does_not_hear_is_named() -> None:
    for entry in (None, ENTRY | {"state": "dead"}):
        unheard = replace(node_look(), service=StatusPart("service", entry))
        assert "the service does not hear it" in flat(node_answers(unheard)["todo"])
    assert (
        "never heard of this address" in node_answers(replace(node_look(), service=StatusPart("service")))["seen"][-1]
    )


def seats_look() -> StatusLook:
    state = make_state(make_sub())
    state.seats[5] = Seat(5, OWNER, NODE, 90, 1, earned=40, penalised=10, groups=(1,))
    state.seats[6] = Seat(6, OWNER, NODE, 100, 1, left_epoch=3, release_at=1990)
    state.slashes.append(Slash("seat", "5", 1, 0, Code.REJECT_WEIGHTS, 10, 9, 1400, "0xt"))
    state.lanes[1, 0] = Lane(1, 0, [drawn(commits={1: bytes(32)})], [0])
    chain = {
        "seats": [seat_view(state, seat, CHAIN_NOW) for seat in state.seats.values()], "now": CHAIN_NOW, "epoch": 9,
        "bond": 100, "gas_price": 10**6, "voters": {NODE: 0}, "open": list(open_rounds(state, 5)), "service": "",
    }  # fmt: skip
    return look(OWNER, chain)


def test_a_validator_is_answered_five_questions() -> None:
    answers = seats_answers(seats_look())
    assert answers["seen"][0] == "the chain: 1 of 2 seats active, they may be drawn for pools 1"
    assert answers["doing"][-1] == "seat 5: lane 0 of pool 1: committed, to be opened"
    assert "fees 0.00000004 tokens, penalties 0.00000001" in answers["earned"][0]
    assert answers["earned"][1] == "the bond of seat 6, 0.0000001 tokens, unlocks now"
    assert answers["refused"] == [
        "seat 5 lost 0.00000001 tokens at file 0 of pool 1: it accepted a file that was reject: weights"
    ]
    todo = flat(answers["todo"])
    assert "seat 5 lacks 0.00000001 tokens of its bond: muster validator judge --seat 5" in todo
    assert "take the bond of seat 6: muster validator leave --seat 6" in todo
    assert "gas for fewer than 10 lanes is left" in todo


def test_a_validator_is_told_what_to_do_whichever_part_is_down() -> None:
    assert "a drawn seat that cannot vote loses money" in seats_answers(down(seats_look(), "chain"))["todo"][0]
    assert seats_answers(down(seats_look(), "service"))["seen"][-1].startswith("the service is down")
    assert "start the process at once" in flat(seats_answers(down(seats_look(), "process"))["todo"])


def test_a_seat_that_left_is_told_to_run_on_until_it_can_no_longer_be_drawn() -> None:
    state = make_state()
    seat = state.seats[5] = Seat(5, OWNER, NODE, 100, 1, groups=(1,), left_epoch=8)
    assert seat_view(state, seat, CHAIN_NOW)["drawable_until"] == 11
    leaving = changed(seats_look(), seats=[seat_view(state, seat, CHAIN_NOW)], open=[])
    crashed = flat(seats_answers(down(leaving, "process"))["todo"])
    assert "keep the process running until epoch 11 ends (it is 9)" in crashed
    assert "start the process at once" in crashed
    assert "seat 5 can be drawn until epoch 11 ends" in crashed
    over = flat(seats_answers(down(changed(leaving, epoch=12), "process"))["todo"])
    assert "start unbonding seat 5: muster validator leave --seat 5" in over
    assert "start the process" not in over


@pytest.mark.parametrize(
    ("seat", "words"),
    [
        ({"groups": ()}, "seat 5 judges nothing: muster validator judge --pool NUMBER"),
        ({"bond": 40}, "seat 5 lacks 0.00000006 tokens of its bond: muster validator judge --seat 5"),
        ({"evicted": True, "left_epoch": 3}, "evicted for lack of bond: muster validator leave --seat 5"),
        ({"left_epoch": 8}, "keep the process running until epoch 11 ends (it is 9)"),
        ({"left_epoch": 3}, "start unbonding seat 5: muster validator leave --seat 5"),
        ({"left_epoch": 3, "release_at": CHAIN_NOW + 60}, "(in 60 s), take the bond of seat 5: muster validator leave"),
        ({"left_epoch": 3, "release_at": CHAIN_NOW}, "take the bond of seat 5: muster validator leave --seat 5"),
        ({"left_epoch": 3, "closed": True, "fees": 1}, "take what the seats earned: muster validator claim"),
        ({"left_epoch": 3, "closed": True}, "nothing: every bond is withdrawn; to judge again: muster validator up"),
        ({}, "nothing"),
    ],
)
def test_every_stage_of_a_seat_has_a_next_step(seat: dict[str, Any], words: str) -> None:
    state = make_state()
    healthy = Seat(5, owner=OWNER, voter=NODE, bond=100, active_from=1, groups=(1,))
    state.seats[5] = replace(healthy, **seat)
    view = seat_view(state, state.seats[5], CHAIN_NOW)
    todo = seats_answers(changed(seats_look(), seats=[view], open=[], voters={}))["todo"]
    assert words in flat(todo)
    assert seat or todo == ["nothing"]


KEPT = {"files": 3, "bytes": 5 << 20, "oldest": int(NOW) - 7200, "where": "https://seat.example", "problem": ""}
SILENT = {**KEPT, "files": 0, "where": "", "problem": "20480 MiB are full (`keep_gib`)"}


@pytest.mark.parametrize(
    ("process", "words"),
    [
        (
            {"retained": KEPT},
            "retaining 3 files (5.0 MiB, the oldest came 2.0 h ago) for juries, shown at https://seat.",
        ),
        ({"retained": SILENT}, "retaining 0 files (5.0 MiB) for juries, shown to nobody"),
        ({"retained": SILENT}, "name where retained files are shown (`serve` or `republish`)"),
        ({"retained": SILENT}, "make room for files that seats answer for: 20480 MiB are full"),
        ({"engines": ["vllm", "transformers"]}, "vllm; files of node challenges that transformers made with that"),
        ({"engines": ["vllm"]}, "judging with vllm; files of other engines too"),
        ({"unserved": {"1": "nobody answers"}}, "judge pool 1, which this machine cannot (nobody answers)"),
        ({"unserved": {"7": "no weights"}}, "pool 7, which it tries every half minute at least (no weights)"),
    ],
)
def test_a_validator_is_told_what_its_process_retains_judges_with_and_cannot_judge(
    process: dict[str, Any], words: str
) -> None:
    answers = seats_answers(changed(seats_look(), "process", **process))
    assert words in flat(answers["doing"] + answers["todo"])
    assert ("`republish`" in flat(answers["todo"])) is (process.get("retained") == SILENT)


def test_a_pool_that_its_machine_cannot_judge_is_named_while_the_process_runs() -> None:
    unserved = changed(seats_look(), "process", unserved={"1": "nobody answers"})
    assert "judge pool 1" not in flat(seats_answers(down(unserved, "process"))["todo"])
    blind = down(unserved, "chain", never=True)
    assert "judge pool 1, which this machine cannot" in flat(seats_answers(blind)["todo"])


RUN: dict[str, Any] = {
    "phase": "training", "step": 3, "steps": 6, "chain_error": "",
    "in_flight": {"leased": 1, "pending": 2, "accepted": 3},
    "waits": [{"who": "trainer", "what": "files", "since": NOW - 9}],
}  # fmt: skip


def pool_look() -> StatusLook:
    state = make_state(make_sub(0, code=Code.MALFORMED), make_sub(1, code=Code.ACCEPT))
    state.pools[1].steps.append(Step(0, bytes(32), bytes(32), 1, 1, 1, ""))
    chain = {
        "view": pool_view(state, 1, CHAIN_NOW), "free": 50, "file": 10, "now": CHAIN_NOW, "settle_at": 0,
        "refused": [{"sequence": 0, "node": NODE, "reason": "malformed"}], "slashed": [],
    }  # fmt: skip
    return look("1", chain, RUN, None)


def test_an_owner_is_answered_five_questions() -> None:
    answers = pool_answers(pool_look(), {})
    assert (
        answers["seen"][0]
        == "the chain: pool 1 is open, members: 1 node; 0 of 11 needed seats judge pool 1, of 0 owners"
    )
    assert answers["doing"] == [
        "working on policy step 0",
        "the service: training, policy step 3 of 6, files: 1 leased, 2 pending, 3 accepted",
        "trainer is waiting for files (9 s ago)",
    ]
    assert "100 output tokens were accepted" in answers["earned"][0]
    assert answers["refused"] == ["1 malformed", f"file 0 of {NODE}: malformed"]
    for words in ("name the service's key", "11 more seats must judge the pool", "buys 5 more of the largest files"):
        assert words in flat(answers["todo"])
    warned = pool_answers(pool_look(), {}, "the pool's configuration names no null model")
    assert warned["seen"][-1].startswith("WARNING: the pool's configuration names no null model: cheats too small")


def test_an_owner_is_answered_without_chain_or_service() -> None:
    assert "the service: training" in flat(pool_answers(down(pool_look(), "chain", never=True), {})["doing"])
    no_service = pool_answers(down(pool_look(), "service"), {})
    assert "the service: training" not in flat(no_service["doing"])
    assert "bring the service back: muster pool serve" in flat(no_service["todo"])


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("open", "find nodes"),
        ("paused", "let it go on: muster pool pause --pool 1 --end"),
        ("understaffed", "have the seats counted: muster pool set-service --pool 1 --count-seats"),
        ("finished", "the run is over: close the pool, then take the rest back: muster pool close --pool 1"),
        ("closing", "take the rest of the budget, now: muster pool close --pool 1"),
        ("settled", "nothing"),
    ],
)
def test_every_stage_of_a_pool_has_a_next_step(status: str, words: str) -> None:
    shown = pool_look()
    view = (shown.chain.facts or {})["view"] | {
        "nodes": [],
        "seats": {"count": 11, "needed": 11, "owners": 3, "group": ""},
    }
    if status == "finished":
        shown = changed(shown, "service", phase="finished")
    elif status != "open":
        view |= {"status": status}
    todo = pool_answers(changed(shown, view=view), {})["todo"]
    assert words in flat(todo)
    assert status != "settled" or todo == ["nothing"]


def test_an_owner_is_told_why_a_process_ended_and_whom_a_slash_touches() -> None:
    gone = {"orchestrator": "it does not run; its last message: port 8700 is in use", "trainer": "it does not run"}
    todo = flat(pool_answers(down(pool_look(), "service"), gone)["todo"])
    assert "muster pool serve (it does not run; its last message: port 8700 is in use)" in todo
    assert "muster pool train (it does not run)" in todo
    finished = changed(pool_look(), "service", phase="finished")
    assert "muster pool train" not in flat(pool_answers(finished, gone)["todo"])
    slashed = changed(pool_look(), slashed=[{"who": ADDRESS, "sequence": 4, "amount": 20 * 10**9}])
    words = f"{ADDRESS} was slashed 20 tokens for file 4, which touches no other node: muster why 4 --pool 1"
    assert words in pool_answers(slashed, gone)["refused"]


def test_everybody_gets_the_same_five_answers_even_with_everything_down() -> None:
    def answered(change: Callable[[StatusLook], StatusLook]) -> list[dict[str, Any]]:
        node, seats, pool = map(change, (node_look(), seats_look(), pool_look()))
        return [node_answers(node), seats_answers(seats), pool_answers(pool, {})]

    for change, gone in ((lambda up: up, []), (lambda up: down(up, *DOWN, never=True), list(DOWN))):
        for answers in answered(change):
            assert list(answers) == [*QUESTIONS, "down"]
            assert all(answers[key] for key in QUESTIONS)
            assert [part["part"] for part in answers["down"]] == gone
    for answers in answered(lambda up: down(up, "chain")):
        for lines in (answers["seen"], answers["earned"], answers["refused"]):
            assert "(as of 60 s ago: the chain is down)" in lines
    for answers in answered(lambda up: down(up, "chain", never=True)):
        assert answers["earned"] == answers["refused"] == answers["seen"][:1]


# Looking


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
    assert "does not answer" in look_at_service(CLOSED, STATUS).down
    assert "no URL is named" in look_at_service(None, STATUS).down


def test_a_running_process_holds_its_lock(tmp_path: Path) -> None:
    home = tmp_path / "operator" / "worker"
    assert "not known" in look_at_process(None).down
    assert "never started" in look_at_process(home).down
    (home / "chain" / "journal").mkdir(parents=True)
    (home / "chain" / "journal" / "1.json").write_text("{}")
    log_of(home).parent.mkdir()
    log_of(home).write_text("one\n\x1b[31mtwo\n")
    lock = FileLock(home / "chain" / "events.sqlite.lock")
    lock.acquire()
    running = look_at_process(home)
    assert running.down == ""
    assert running.facts == {"log": "?[31mtwo", "unsubmitted": 1, "unserved": {}, "retained": {}, "engines": []}
    lock.release()
    stopped = look_at_process(home)
    assert stopped.down == "it does not run on this machine; its last message: ?[31mtwo"
    assert abs(stopped.seen - time.time()) < 60
    (home / CRASH_MESSAGE).symlink_to(log_of(home))
    assert last_line(tmp_path / "none") == last_line(home / CRASH_MESSAGE) == "", "an isolated process made the link"


def test_the_commands_answer_while_chain_and_service_are_down(shared_suite: Deployed, tmp_path: Path) -> None:
    up, blind = (Muster(tmp_path, shared_suite.folder, url) for url in (shared_suite.chain.url, CLOSED))
    for order in (("node", "status", "--node", OWNER), ("validator", "status", "--address", OWNER)):
        unseeing = blind.ok(*order, "--json").json
        assert unseeing["seen"][0].startswith("unknown: the chain is down since before")
        seeing = up.ok(*order, "--json").json
        assert seeing["seen"][0].startswith("no: ")
        assert set(QUESTIONS) <= set(seeing)
    assert "the chain is down" in blind.ok("pool", "status", "--pool", 1).out


# What is wrong around the process


def around(service: FailingService, home: Path | None = None, config_hash: str = "") -> str:
    return flat(alarm_lines(look_around(service.url, home, config_hash, node=ADDRESS)[0]))


def test_what_the_service_lacks_is_named_with_its_cure(service: FailingService) -> None:
    assert around(service) == ""
    assert around(service, config_hash="00" * 32).endswith("start the pool's storage; uploads wait meanwhile")
    service.documents["/ready"] = {"problems": ["this service has another key"]}
    assert around(service).startswith("this service has another key: ")
    service.documents["/health"]["version"] = "9.9.9"
    assert "the service is version 9.9.9, this one" in around(service)
    service.documents["/health"]["version"] = VERSION
    service.documents[f"/v1/nodes/{ADDRESS}"]["phase"] = "trouble"
    assert "the process does not get what it needs: its log" in around(service)
    service.documents[f"/v1/nodes/{ADDRESS}"]["trouble"] = "shard 00… came with\x1bother bytes; fetch it again"
    assert "does not get what it needs: shard 00… came with?other bytes; fetch it again" in around(service)
    service.documents[f"/v1/nodes/{ADDRESS}"] |= {
        "phase": "generating",
        "trouble": "another process works with this key",
    }
    assert "another process works with this key: its log names" in around(service)
    service.statuses |= {"/ready": 503, "/v1/status": 500, f"/v1/nodes/{ADDRESS}": 500}
    assert around(service) == "the service's database does not answer: start the database; nothing is lost"
    service.documents["/health"] = []
    assert around(service) == ""
    assert look_around("no url") == look_around(None) == ([], False)


def test_a_full_disk_and_a_device_that_hangs_are_named(
    service: FailingService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "operator"
    assert around(service, home=home) == "", "a home that is not there yet"
    home.mkdir()
    monkeypatch.setattr("cli.diagnose.status.free_bytes", lambda path: GIB)
    lock = FileLock(home / "events.sqlite.lock")
    lock.acquire()
    (home / STALLED).write_text(f"{time.time() - 9:.0f} a step of the model does not end")
    lines = around(service, home=home).splitlines()
    assert lines[0].startswith(f"the disk of {home} has 1.0 GiB left: delete what can be recomputed")
    assert "a step of the model does not end, for " in lines[1]
    assert "look at the GPU" in lines[1]
    lock.release()


def test_every_status_shows_what_is_around() -> None:
    alarms = surroundings(WatchLimits(), Facts(0.0, {"/h": GIB}))
    node, seats, pool = (replace(up, around=alarms) for up in (node_look(), seats_look(), pool_look()))
    for answers in (node_answers(node), seats_answers(seats), pool_answers(pool, {})):
        assert "the disk of /h has 1.0 GiB left" in flat(answers["todo"])
