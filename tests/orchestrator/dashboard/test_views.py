"""The documents behind the dashboard's pages: paged, filtered, exact, and cheap however many ask."""

import copy
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from chain.indexer.state import State
from orchestrator.app import create_app
from orchestrator.dashboard.documents import CACHED_ANSWERS, AnswerCache, Snapshot, StepTally, record, tallies
from orchestrator.dashboard.evidence import PLACES
from orchestrator.dashboard.results import documents
from orchestrator.dashboard.views import get_overview, history
from orchestrator.ledger import escrow
from protocol.api.run import PublishedEntry, RunRecord
from protocol.verdict import Code
from protocol.waits import wait_for
from tests.orchestrator.chain import CHEAT, NODE, OWNER, STRANGER, VOTER, WINDOW, ScriptedChain
from tests.orchestrator.conftest import URL, Desk, is_error
from tests.orchestrator.crowd import Crowd, Still, give_evidence
from trainer.reports.metrics import SCALARS


@pytest.fixture(scope="module")
def crowd() -> Crowd:
    return Crowd(nodes=60, files=300)


@pytest.fixture
def busy(desk: Desk, crowd: Crowd) -> Desk:
    """A desk over 60 nodes and 300 files."""
    desk.view.projection, desk.now = Still(crowd.state), crowd.now
    return desk


def pages(desk: Desk, path: str) -> Iterator[Any]:
    """Every row of a list, page by page."""
    after = ""
    while True:
        page = desk.get(f"{path}limit=7{after}")
        yield from page["rows"]
        if page["next"] is None:
            return
        after = f"&after={page['next']}"


def test_the_pages_of_a_list_have_every_row_once(busy: Desk, crowd: Crowd) -> None:
    files = [row["sequence"] for row in pages(busy, "submissions?")]
    assert files == list(range(299, -1, -1))
    assert [row["address"] for row in pages(busy, "nodes?")] == crowd.members
    assert busy.get("submissions")["total"] == 300
    for path in ["ledger", "slashes", "validators", "disputes", "challenges", "canaries", "pools", "policy-steps"]:
        rows = [str(row) for row in pages(busy, f"{path}?")]
        assert len(set(rows)) == len(rows) == busy.get(f"{path}?limit=1")["total"] > 0


def test_lists_are_narrowed_by_node_outcome_step_and_state(busy: Desk, crowd: Crowd) -> None:
    subs = crowd.state.submissions_of(1)
    node = subs[0].node
    own = [row["sequence"] for row in pages(busy, f"submissions?node={node}&")]
    assert own == [sub.sequence for sub in reversed(subs) if sub.node == node]
    assert busy.get(f"submissions?node={node.lower()}")["total"] == len(own)
    void = [row["sequence"] for row in pages(busy, "submissions?status=void&")]
    assert void == [sub.sequence for sub in reversed(subs) if sub.status.value == "void"]
    assert busy.get("submissions?step=5")["rows"] == []
    waiting = list(pages(busy, "nodes?state=waiting&"))
    assert {row["state"] for row in waiting} == {"waiting"}
    earned = [int(row["earned"]) for row in pages(busy, "nodes?order=earned&")]
    assert earned == sorted(earned, reverse=True)
    operator = crowd.state.accounts[1, node].operator
    assert {row["operator"] for row in pages(busy, f"nodes?operator={operator}&")} == {operator}


def test_the_overview_counts_what_the_record_lists(busy: Desk) -> None:
    short, whole = busy.get("overview"), record(busy.service)
    assert short["counts"] == whole.counts
    assert sum(short["nodes"].values()) == len(short["map"]) == len(whole.nodes)
    assert short["tokens"] == sum(one.units for one in whole.submissions if one.status == "accepted")
    assert short["disputes"] == len(whole.disputes)


def test_the_report_embeds_what_the_service_answers(desk: Desk) -> None:
    for counter in range(3):
        sequence = desk.chain.submit(NODE, counter)
        desk.chain.settle(NODE, sequence, Code.ACCEPT)
    desk.chain.publish(1)
    desk.follow()
    desk.report(1, [0], metrics={"reward": 0.5}, evaluation=desk.evaluation(1, 0.75))
    desk.report(2, [1], metrics={"reward": 0.625})
    sent = RunRecord.model_validate_json(record(desk.service).model_dump_json())
    embedded = documents(None, sent).model_dump(mode="json")
    assert embedded["history"] == desk.get("history")
    assert embedded["steps"] == [desk.get(f"policy-steps/{step}") for step in (0, 1)]
    live, same = desk.get("overview"), embedded["overview"]
    differing = {name for name in live if live[name] != same[name]}
    assert differing <= {"time", "chain", "throughput", "today", "terms", "in_flight"}
    assert (live["reward"], live["heldout"], live["heldout_step"]) == (0.625, 0.75, 1)


def test_every_number_of_a_training_step_has_a_chart_with_a_title() -> None:
    script = (files("orchestrator") / "dashboard" / "static" / "pages.js").read_text()
    charted = set(re.findall(r'"metric/(\w+)"', script))
    assert SCALARS.keys() - {"step", "heldout_loss"} == charted - {"reward"}


def test_a_file_has_its_votes_and_what_became_of_it(busy: Desk, crowd: Crowd) -> None:
    disputed = next(one for one in crowd.state.disputes.values() if one.resolved)
    file = busy.get(f"submissions/{disputed.sequence}")
    committee, jury = file["panels"]
    assert [member["seat"] for member in committee["members"]] == [0, 3, 7]
    assert {member["code"] for member in committee["members"]} == {file["reason"]} == {committee["outcome"]}
    assert (jury["kind"], jury["number"], jury["outcome"]) == ("jury", disputed.trial, "accept")
    assert file["dispute"]["overturned"] is True
    assert file["tx"] == crowd.state.submissions[1, disputed.sequence].tx


def test_a_challenge_says_who_accuses_whom_of_what_and_how_its_jury_votes(busy: Desk, crowd: Crowd) -> None:
    fresh, voting, upheld = busy.get("challenges")["rows"]
    known = crowd.state.challenges[1]
    assert (upheld["challenge"], upheld["node"], upheld["accuser"]) == (1, known.node, known.accuser)
    assert upheld["sequences"] == list(known.sequences)
    assert upheld["votes"] == {"reject: weights": 3, "accept": 1}
    assert (upheld["outcome"], upheld["reason"]) == ("upheld", "reject: weights")
    assert (upheld["bond"], upheld["back"], upheld["slashed"]) == ("11000000000", "11000000000", "5000000000")
    assert (voting["outcome"], voting["reason"], voting["votes"]) == ("open", "", {})
    assert (voting["trial"], voting["drawn"], voting["committed"], voting["jurors"]) == (102, True, 4, 5)
    assert (fresh["challenge"], fresh["drawn"], fresh["committed"]) == (3, False, 0)
    assert [one.challenge for one in record(busy.service).challenges] == [1, 2, 3]


def test_a_challenge_with_another_jury_has_that_ones_votes(busy: Desk, crowd: Crowd) -> None:
    challenge = crowd.state.challenges[2]
    crowd.state.trials[105] = replace(crowd.state.trials[102], trial=105, seats=(), commits={})
    challenge.trials.append(105)
    try:
        assert busy.get("challenges?after=1&limit=1")["rows"][0]["drawn"] is False
    finally:
        challenge.trials.pop()


def test_onlookers_who_wait_for_files_take_few_threads_from_signed_requests(busy: Desk, crowd: Crowd) -> None:
    give_evidence(busy, crowd.state)
    evidence, may_read = busy.service.evidence, threading.Event()
    read = evidence.open_object

    def slow(key: str, limit: int) -> bytes:
        assert may_read.wait(60)
        return read(key, limit)

    evidence.open_object = slow
    with ThreadPoolExecutor(PLACES) as onlookers:
        asked = [onlookers.submit(busy.get, f"submissions/0/rollouts?after={8 * at}") for at in range(PLACES)]
        wait_for("all places to be taken", lambda: evidence._places._value == 0, 60, poll=0.02)
        refused = busy.http.get("/v1/submissions/0/verdicts")
        may_read.set()
        assert is_error(refused, 503, "other files")
        assert refused.headers["retry-after"] == "2"
        assert all(one.result(60)["rows"] for one in asked)
    assert busy.get("submissions/0/verdicts")["verdicts"]


def test_verdicts_and_rollouts_are_read_from_the_bucket_and_checked(busy: Desk, crowd: Crowd) -> None:
    give_evidence(busy, crowd.state)
    verdicts = busy.get("submissions/0/verdicts")["verdicts"]
    assert [(one["seat"], bool(one["problem"])) for one in verdicts] == [(0, False), (3, False), (7, False), (1, True)]
    toploc = next(one for one in verdicts[0]["findings"] if one["check"] == "toploc")
    assert toploc["figures"]["mantissa_mean"] == 0.0071
    assert toploc["figures"]["mantissa_mean_reject"] == 0.012
    rows = busy.get("submissions/0/rollouts")
    assert (rows["total"], rows["next"], len(rows["rows"])) == (128, 8, 8)
    assert rows["rows"][0]["completion"].startswith("17 + 25 = 42")
    assert rows["rows"][0]["text"] is True
    assert busy.get("submissions/0/rollouts?after=120")["next"] is None
    assert is_error(busy.http.get("/v1/submissions/0/rollouts?after=128"), 404, "128 rows")
    assert busy.get("submissions/20/rollouts")["problem"] == "the file is not in the pool's bucket"
    unpublished = busy.get("submissions/20/verdicts")["verdicts"]
    assert {one["problem"] for one in unpublished} == {"its voter has not published it"}


def test_a_file_that_is_no_rollout_file_is_said_to_be_one(busy: Desk, crowd: Crowd) -> None:
    sub = give_evidence(busy, crowd.state)
    key = f"rollouts/{sub.sha256.hex()}.parquet"
    busy.bucket.objects[key] = b"PAR1" + busy.bucket.objects[key][4:-8] + b"\0" * 4 + b"PAR1"
    assert "hash" in busy.get("submissions/0/rollouts")["problem"]


def test_a_search_finds_addresses_hashes_and_numbers(busy: Desk, crowd: Crowd) -> None:
    node = crowd.members[3]
    assert busy.get(f"search?q={node[:10].lower()}")["hits"][0] == {"kind": "node", "id": node, "label": "node"}
    sub = crowd.state.submissions[1, 7]
    assert busy.get(f"search?q={sub.tx[:18]}")["hits"] == [{"kind": "submission", "id": "7", "label": "file 7"}]
    kinds = {hit["kind"] for hit in busy.get("search?q=%231")["hits"]}
    assert kinds == {"submission", "validator", "pool"}
    assert busy.get("search?q=%3Cscript%3E")["hits"] == []


def test_a_search_finds_nodes_validators_and_pools_by_a_part_of_their_names(desk: Desk) -> None:
    desk.chain.seat(VOTER)
    desk.follow()
    desk.beat(NODE, name="Garage rig 7")
    desk.beat(VOTER, role="validator", name="Rigorous")
    names = {"RIG": {("node", NODE.address), ("validator", VOTER.address)}, "rage rig": {("node", NODE.address)}}
    for part, expected in names.items():
        assert {(hit["kind"], hit["id"]) for hit in desk.get(f"search?q={part}")["hits"]} == expected
    assert desk.get("search?q=tes")["hits"] == [{"kind": "pool", "id": "1", "label": "test"}]
    assert [hit["kind"] for hit in desk.get("search?q=7")["hits"]] == ["node"]
    desk.chain.emit("Court", "ServiceAnnounced", pool=1, url="https://deep.example")
    desk.follow()
    assert [hit["label"] for hit in desk.get("search?q=Deep")["hits"]] == ["https://deep.example"]


def test_an_operator_sees_its_pay_by_day_and_what_unlocks_when(desk: Desk) -> None:
    chain, day = desk.chain, 86_400
    for key in (NODE, CHEAT):
        chain.emit("Stakes", "NodeBound", node=key.address, pool=1)
    for counter, units in enumerate((70, 30)):
        chain.head += day
        chain.settle(NODE, chain.submit(NODE, counter, units=units), Code.ACCEPT, units)
    desk.now = 1000.0 + chain.head
    chain.emit("Stakes", "StakeLent", node=CHEAT.address, sponsor=VOTER.address, amount=2000)
    chain.emit("Stakes", "NodeUnbound", node=CHEAT.address, releaseAt=999_999)
    desk.follow()
    one, final = desk.get(f"operators/{OWNER.address}"), int(desk.now) + 1 + WINDOW
    assert [(entry["day"] // day, entry["pay"]) for entry in one["days"]] == [(1, "700"), (2, "300")]
    total = one["total"]
    assert [total[name] for name in ("earned", "vested", "locked", "claimed")] == ["1000", "700", "300", "0"]
    assert one["unlocks"] in ([final, final], [final - 1, final - 1])
    assert one["recent"] == {"seconds": 6 * 3600, "files": 1, "tokens": 30}
    assert one["stakes"] == [
        {"stake": "5000", "nodes": 1, "unlocks": None},
        {"stake": "3000", "nodes": 1, "unlocks": 999_999},
    ]


def test_what_was_decided_lately_is_said_of_no_more_time_than_there_was(desk: Desk) -> None:
    chain = desk.chain
    chain.settle(NODE, chain.submit(NODE, 0, units=70), Code.ACCEPT, 70)
    desk.now = 1000.0 + chain.head + 900
    desk.follow()
    assert desk.get("overview")["today"]["seconds"] in range(900, 905)
    assert desk.get("overview")["throughput"] == {"seconds": 600, "files": 0, "tokens": 0}
    desk.now += 10**6
    assert desk.get("overview")["today"] == {"seconds": 86_400, "files": 0, "tokens": 0}


MISSING = (
    "nodes/" + STRANGER.address,
    "operators/" + NODE.address,
    "validators/" + CHEAT.address,
    "submissions/9999",
    "policy-steps/9",
)
ODD = ("nodes/0x12", "nodes?limit=101", "submissions?after=-1", "submissions/x", "nodes?state=x", "search?q=")


@pytest.mark.parametrize(("path", "status"), [*((path, 404) for path in MISSING), *((path, 422) for path in ODD)])
def test_what_is_not_there_or_cannot_be_asked_says_so(busy: Desk, path: str, status: int) -> None:
    assert busy.http.get(f"/v1/{path}").status_code == status


def test_an_empty_pool_has_empty_pages(tmp_path: Path) -> None:
    desk = Desk(tmp_path, ScriptedChain())
    lists = "nodes submissions validators disputes ledger pools policy-steps slashes canaries challenges"
    for path in lists.split():
        assert desk.get(path) == {"rows": [], "total": 0, "next": None}
    assert desk.get("overview")["escrow"] is None
    assert desk.get("history") == {"steps": [], "columns": {}}


def test_an_owners_folders_are_not_shown_in_public(desk: Desk) -> None:
    model = desk.service.config.model.model_copy(update={"source": "/home/alice/models/tiny-llama/"})
    desk.service.config = desk.service.config.model_copy(update={"model": model})
    assert desk.get("overview")["model"] == desk.get("dashboard")["model"] == "tiny-llama"


def test_a_tally_sums_a_step(crowd: Crowd) -> None:
    found = tallies([(3, "accepted", 10, 100, 120), (3, "accepted", 5, 90, 130), (3, "void", 7, 140, 150)])
    assert found == {3: StepTally(files=found[3].files, tokens=15, submitted=(90, 140), accepted=(120, 130))}
    assert found[3].files == {"accepted": 2, "void": 1}


def test_a_long_history_is_thinned_out_with_both_ends() -> None:
    published = [PublishedEntry(step=step, time=step, block=step) for step in range(5000)]
    short = history(published, {}, [])
    assert len(short.steps) == 400
    assert (short.steps[0], short.steps[-1]) == (0, 4999)
    assert sorted(set(short.steps)) == short.steps


def test_a_run_that_has_nobody_to_work_for_it_says_so(desk: Desk) -> None:
    """It used to say "training" for ever, whoever had left."""
    waits = [{"what": "2 accepted files for step 1: no node may work", "since": desk.now - 9}]
    desk.beat(OWNER, "trainer", name="trainer", phase="waiting for 2 accepted files for step 1", waits=waits)

    def phases() -> set[str]:
        return {desk.get(path)["phase"] for path in ("status", "overview", "dashboard")}

    assert phases() == {"training"}
    for key, phase in ((NODE, "training"), (CHEAT, "waiting for nodes to join")):
        desk.chain.emit("Pools", "NodeLeft", pool=1, node=key.address, removed=False)
        desk.follow()
        assert phases() == {phase}
    for path in ("status", "overview", "dashboard"):
        assert {"who": "trainer", **waits[0]} in desk.get(path)["waits"]


def test_an_answer_is_made_once_within_ten_times_what_it_took() -> None:
    now, made = [0.0], []

    def slow() -> int:
        now[0] += 2.0
        made.append(1)
        return len(made)

    answers = AnswerCache(0.5, clock=lambda: now[0])
    assert [answers.get("a", slow) for _ in range(5)] == [1] * 5
    now[0] += 19.9
    assert answers.get("a", slow) == 1
    now[0] += 0.2
    assert answers.get("a", slow) == 2


def test_an_answer_that_failed_is_tried_again_and_the_cache_is_bounded() -> None:
    answers, tries = AnswerCache(600.0), iter([ValueError(), "there"])

    def make() -> str:
        made = next(tries)
        if isinstance(made, ValueError):
            raise made
        return str(made)

    with pytest.raises(ValueError):
        answers.get("a", make)
    assert answers.get("a", make) == answers.get("a", make) == "there"
    for number in range(3 * CACHED_ANSWERS):
        answers.get(number, str)
    assert len(answers._answers) == CACHED_ANSWERS


def test_what_is_no_parameter_is_no_reason_to_compute_an_answer_again(
    busy: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever varies the rest of a URL gets the cached answer, and other parameters get theirs."""
    http = TestClient(create_app(busy.service, busy.guard, rate=1000, burst=1000, view_seconds=600), base_url=URL)
    computed: list[str] = []
    for name in ("run_fields", "node_states"):  # what the overview is made from, and what a list of nodes is
        original = getattr(Snapshot, name)

        def counted(self: Snapshot, name: str = name, original: Any = original) -> Any:
            computed.append(name)
            return original(self)

        monkeypatch.setattr(Snapshot, name, counted)
    answers = {http.get(f"/v1/overview?x={number}").text for number in range(50)}
    assert len(answers) == computed.count("run_fields") == 1
    computed.clear()
    waiting = "?state=waiting"
    for query in (waiting, f"{waiting}&limit=25", f"{waiting}&limit=25&x=1", f"{waiting}&order=joined&after=0"):
        assert http.get(f"/v1/nodes{query}").status_code == 200
    assert len(computed) == 1, "defaults that are written out are the same parameters"
    http.get(f"/v1/nodes{waiting}&after=25")
    assert len(computed) == 2


def test_an_answer_is_compressed_for_whoever_takes_that(busy: Desk) -> None:
    packed = busy.http.get("/v1/record", headers={"Accept-Encoding": "br, gzip"})
    plain = busy.http.get("/v1/record", headers={"Accept-Encoding": "identity"})
    assert (packed.headers["content-encoding"], packed.headers["vary"]) == ("gzip", "Accept-Encoding")
    assert "content-encoding" not in plain.headers
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"]) / 3
    assert packed.json() == plain.json()


def test_an_overview_of_unchanged_files_does_not_sum_them_again(busy: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    answers, read = AnswerCache(60.0), list[int]()
    every = State.submissions_of

    def counted(state: State, *of: Any) -> Any:
        read.append(1)
        return every(state, *of)

    monkeypatch.setattr(State, "submissions_of", counted)
    first = get_overview(Snapshot(busy.service, answers))
    assert read
    read.clear()
    assert get_overview(Snapshot(busy.service, answers)) == first
    assert not read
    assert first.escrow == escrow(busy.view.state, 1)


@pytest.mark.parametrize("accepted", ["gzip;q=0", "br, gzip; q=0.0, *;q=0", "not-gzip"])
def test_whoever_refuses_gzip_gets_plain_text(busy: Desk, accepted: str) -> None:
    answer = busy.http.get("/v1/record", headers={"Accept-Encoding": accepted})
    assert "content-encoding" not in answer.headers
    assert answer.json()["pool"] == 1


def test_another_pools_penalties_are_no_money_of_this_one(busy: Desk, crowd: Crowd) -> None:
    seat = crowd.state.seats[3]
    paths = ("overview", "slashes", "validators", f"validators/{seat.owner}", "ledger?after=60")

    def seen() -> list[dict[str, Any]]:
        return [busy.get(path) for path in paths]

    before, state = seen(), copy.copy(crowd.state)
    slash = next(one for one in state.slashes if one.kind == "seat")
    state.slashes = [*state.slashes, replace(slash, pool=2, amount=10**9), replace(slash, kind="node", pool=2)]
    state.seats = state.seats | {3: replace(seat, penalised=seat.penalised + 10**9)}
    busy.start()
    busy.view.projection = Still(state)
    for was, now in zip(before, seen(), strict=True):
        assert {name for name in was if was[name] != now[name]} <= {"started", "seq"}
