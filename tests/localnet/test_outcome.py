"""What a run reports: safeguards read from real contracts, agreement of honest validators, and whether it was good."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from pydantic import BaseModel

from chain.indexer.records import Canary, Dispute, Pool, Seat
from chain.indexer.state import State
from localnet.outcome import agreement, broken_safeguards, dodged_canaries, highlights, problems, safeguards, tracebacks
from localnet.plan import DemoPlan, NodeSpec, ValidatorSpec
from orchestrator.dashboard.results import (
    Agreement,
    CheaterSummary,
    DodgedCanary,
    FileCounts,
    RunSummary,
    Safeguards,
    SilentCommittee,
    ValidatorSummary,
)
from protocol.api.run import CanaryEntry, DisputeEntry
from protocol.verdict import Code, Finding, Verdict
from tests.chain.game import SEATS, begin, terms, work
from tests.conftest import TOKEN, Deployed
from tests.e2e.networks import network_plan
from tests.validator.test_replay import verdict

T = TypeVar("T", bound=BaseModel)

CHEATER = CheaterSummary(
    address="0xM",
    slashed=True,
    slashed_base_units=7,
    ejected=True,
    reason="reject: weights",
    rollouts_trained=0,
    submissions=1,
)
AGREEMENT = Agreement(
    validators=[ValidatorSummary(name="wanda", engine="vllm", batch=16, judged=3)],
    compared=3,
    differing=[],
    checks_differing=0,
    largest_differences={},
)
DISPUTES: list[dict[str, Any]] = [{"sequence": n, "overturned": n == 3} for n in (3, 4)]
CANARIES: list[dict[str, Any]] = [{"slashed": {}, "upheld": False}, {"slashed": {"2": 1}, "upheld": True}]
SAFEGUARDS = Safeguards(
    relayed=60,
    by_receipt=[32, 80],
    censored=True,
    without_ether=7,
    members=7,
    opted_in=11,
    needed=11,
    silent=[SilentCommittee(lane=4, absent=[2, 9], fined=400_000_000)],
    dodged=[DodgedCanary(submission=96, seat=3, slashed=20 * TOKEN)],
)
SHOWN: dict[str, Any] = {
    "safeguards": SAFEGUARDS,
    "ledger_matches_chain": True,
    "escrow_balanced": True,
    "honest_rejected": 0,
    "cheaters": [CHEATER],
    "agreement": AGREEMENT,
    "submissions": FileCounts(accepted=8, rejected=2, pending=0, total=10),
    "tokens_verified": 12_345,
    "trainer_idle_share": 0.5,
    "trainer_idle_running": 0.4,
    "trainer_idle_seconds": {"judging": 61.2, "confirming": 9.0},
    "reward_first": None,
    "reward_last": 0.5,
    "steps": 2,
    "seconds": 61.4,
    "disputes": [DisputeEntry.model_construct(**one) for one in DISPUTES],
    "canaries": [CanaryEntry.model_construct(**one) for one in CANARIES],
}
GOOD = RunSummary.model_construct(**SHOWN)


def changed(one: T, **values: object) -> T:
    return one.model_copy(update=values)


UNFINED, UNSLASHED = changed(SAFEGUARDS.silent[0], fined=0), changed(SAFEGUARDS.dodged[0], slashed=0)


def test_a_good_run_has_no_problem() -> None:
    assert list(problems(GOOD)) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ledger_matches_chain": False}, "the ledger differs from the chain"),
        ({"escrow_balanced": False}, "the escrow does not balance"),
        ({"honest_rejected": 2}, "2 honest files were rejected"),
        ({"cheaters": [changed(CHEATER, ejected=False)]}, "the cheater 0xM got away"),
        ({"cheaters": [changed(CHEATER, slashed=False)]}, "the cheater 0xM got away"),
        ({"cheaters": [changed(CHEATER, rollouts_trained=8)]}, "8 rollouts of the cheater 0xM were trained on"),
        ({"safeguards": changed(SAFEGUARDS, relayed=0)}, "no file was relayed"),
        (
            {"safeguards": changed(SAFEGUARDS, by_receipt=[])},
            "the node that the service does not relay submitted nothing by its receipt",
        ),
        ({"safeguards": changed(SAFEGUARDS, without_ether=6)}, "1 nodes or operators held ether"),
        ({"safeguards": changed(SAFEGUARDS, opted_in=10)}, "10 seats opted in, the pool needs 11"),
        ({"safeguards": changed(SAFEGUARDS, silent=[UNFINED])}, "the silent seats [2, 9] of lane 4 paid nothing"),
        ({"safeguards": changed(SAFEGUARDS, dodged=[UNSLASHED])}, "seat 3 dodged canary 96"),
    ],
)
def test_each_problem_alone_makes_a_run_not_good(change: dict[str, Any], said: str) -> None:
    assert list(problems(changed(GOOD, **change))) == [said]


def test_a_traceback_in_a_log_of_ours_makes_a_run_not_good(tmp_path: Path) -> None:
    for name, text in (("s3", "Traceback (most recent call last):"), ("worker-ada", "a line\n"), ("trainer", "\xff")):
        (tmp_path / f"{name}.log").write_text(text, "latin-1")
    assert list(tracebacks(tmp_path)) == []
    (tmp_path / "validator-zoe.log").write_text("Traceback (most recent call last):\n")
    (said,) = tracebacks(tmp_path)
    assert said.startswith("validator-zoe met a fault of its own code")


def test_a_cheater_that_a_busy_machine_kept_from_submitting_fails_no_run() -> None:
    run = changed(GOOD, cheaters=[changed(CHEATER, submissions=0, slashed=False, ejected=False)])
    assert list(problems(run)) == []
    assert any("not shown" in line and line.endswith("a cheater that submits a file") for line in highlights(run))


def test_what_the_draw_of_seats_did_not_bring_about_is_reported_and_fails_no_run() -> None:
    run = changed(GOOD, disputes=[], canaries=[], safeguards=changed(SAFEGUARDS, silent=[], dodged=[]))
    assert list(problems(run)) == []
    assert [line.rpartition(": ")[2] for line in highlights(run) if line.startswith("not shown in this run")] == [
        "honest work that colluding seats reject, and a jury that overturns it",
        "a canary that a lazy seat accepts",
        "a silent committee that is replaced",
        "a lazy seat that disputes the canary it accepted",
    ]


def test_a_run_is_summed_up_in_a_few_lines() -> None:
    assert list(highlights(GOOD)) == [
        "held-out reward not measured → 0.500 in 2 steps, 61 s",
        "files: 8 accepted, 1 refused, 1 canaries; 12,345 tokens verified and paid",
        "trainer idle 50%, after the first step 40%: judging 61 s, confirming 9 s",
        "cheater 0xM: slashed and ejected (reject: weights), 0 rollouts trained",
        "dispute won: the jury overturned the wrong outcome of file 3",
        "canaries: 2 opened, 1 accepted by a lazy validator, which paid",
        "files: 60 relayed by the service; 7 nodes and operators never held ether",
        "file 32, 80: not relayed by the service, submitted by the node with its receipt",
        "seats: 11 opted into the pool, which needs 11",
        "lane 4: seats [2, 9] kept silent, paid 0.4 MUS, and were replaced",
        "canary 96: seat 3 had disputed it to dodge, and lost 20 MUS",
        "honest validators (vllm with batch 16): 3 files judged by more than one, 0 verdicts differ",
        "ledger equals chain: yes, to the last base unit; escrow balances: yes",
    ]


def test_who_relayed_who_held_ether_and_who_kept_silent_are_told_by_the_chain(
    deployed: Deployed, tmp_path: Path
) -> None:
    game = begin(deployed, tmp_path)
    (operator, honest), (_, censored) = game.node(), game.node()
    for account in (operator, honest):
        deployed.chain.fund(account.address, 0)
    game.publish()
    game.submit(honest, 0, work("a"))
    speaker, *silent = game.committee(0)
    game.cast((game.pool, 0, 0), [(game.voters[speaker].court, Code.ACCEPT)], pause=31)
    game.settle(0)
    plan = network_plan(tmp_path, 1, (NodeSpec("a", ""), NodeSpec("b", "")), ())
    plan = replace(plan, censored="b")
    keys = {"node-a": honest, "node-b": censored, "operator-a": honest, "operator-b": honest}
    ring: Any = {name: SimpleNamespace(address=key.address) for name, key in keys.items()}

    def found(recorded: Collection[int] = range(1000)) -> Safeguards:
        return safeguards(plan, ring, game.suite.client, game.state, game.pool, recorded)

    assert found().silent == [], "no other committee has decided yet"
    game.vote(0, {0: Code.ACCEPT}, round=1)
    assert "does not relay submitted nothing" in " ".join(broken_safeguards(found()))
    item, now = work("b"), game.suite.client.now()
    mine = game.submit(censored, 0, item, game.receipt(censored.address, item.sha256, now))
    after, values = found(), game.suite.params.values()
    assert (after.relayed, after.by_receipt, after.without_ether, after.members) == (1, [mine.sequence], 3, 3)
    assert (found({mine.sequence}).relayed, found({0}).by_receipt) == (0, []), "of files in the service's record"
    assert (after.opted_in, after.needed) == (SEATS, SEATS)
    (one,) = after.silent
    assert (one.lane, sorted(one.absent), one.fined) == (0, sorted(silent), 2 * values["withheldPenalty"])
    assert list(broken_safeguards(after)) == []
    deployed.chain.fund(honest.address, 1)
    assert list(broken_safeguards(found())) == ["3 nodes or operators held ether"]


def dodging(*canaries: tuple[int, int], disputer: str = "0xlazy", upheld: bool = True) -> list[DodgedCanary]:
    """What seat 7 dodged of canaries (file, paid) that it had accepted; it, or somebody else, disputed file 38."""
    state = State(pools={1: Pool(1, "0xowner", bytes(32), terms(), 60, 0)})
    state.seats[7] = Seat(7, "0xlazy", "0xvoter", 100, 0)
    for file, paid in canaries:
        slashed = {7: paid} if paid else {}
        opened = Canary(1, file, 0, 3, (7,), 5, 9, concluded=True, upheld=upheld, slashed=slashed)
        state.canaries[1, file] = opened
    if disputer:
        state.disputes[1, 38] = Dispute(1, 38, disputer, 1, 5, 9)
    return dodged_canaries(state, 1)


def test_only_the_accused_seats_own_dispute_counts_as_dodging() -> None:
    assert dodging((38, 20)) == [DodgedCanary(submission=38, seat=7, slashed=20)]
    for other in (dodging((38, 20), disputer=""), dodging((38, 20), disputer="0xsomebody")):
        assert other == []
    assert dodging((38, 20), upheld=False) == []


def test_a_seat_pays_once_in_a_lane_whichever_canary_it_dodged() -> None:
    unpaid = dodging((38, 0), (31, 20), (48, 20))
    said = list(broken_safeguards(changed(SAFEGUARDS, dodged=unpaid)))
    assert said == ["seat 7 dodged canary 38"], "what it paid in the lanes beside counts for those"
    paid = dodging((38, 0), (31, 20), (48, 20), (34, 20))  # file 34 is of the same lane, and not disputed
    assert paid == [DodgedCanary(submission=38, seat=7, slashed=20)]
    assert list(broken_safeguards(changed(SAFEGUARDS, dodged=paid))) == []


VERDICT_ACCEPTED = verdict(Finding("toploc", Code.ACCEPT, {"mantissa_mean": 0.001}))
ALSO_GOOD = verdict(Finding("toploc", Code.ACCEPT, {"mantissa_mean": 0.003}))
BAD = verdict(Finding("toploc", Code.REJECT_WEIGHTS, {"mantissa_mean": 1.5}, "too far"))


def plan(root: Path) -> DemoPlan:
    honest = ValidatorSpec("ann", 2), ValidatorSpec("ben", 2, engine="vllm", batch=7)
    return DemoPlan(root, 1, 4, 1, 2, 3, (), (*honest, ValidatorSpec("eve", 3, "colluder")))


def keep(plan: DemoPlan, name: str, file: str, found: Verdict, engine: str = "transformers") -> None:
    folder = plan.home(f"validator-{name}") / "chain" / "verdicts"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{file}.json").write_bytes(replace(found, engine={"name": engine}).canonical())


def test_only_what_two_honest_ones_judged_is_compared(tmp_path: Path) -> None:
    run = plan(tmp_path)
    assert agreement(run).compared == 0, "there is no verdict yet"
    keep(run, "ann", "7-aa", VERDICT_ACCEPTED)
    keep(run, "ben", "7-aa", ALSO_GOOD, "vllm")
    keep(run, "eve", "7-aa", BAD)
    keep(run, "ann", "8-aa", VERDICT_ACCEPTED)
    keep(run, "ben", "8-bb", BAD, "vllm")  # other facts: a reorganisation lay between the two
    (run.home("validator-ann") / "chain" / "verdicts" / "9-cc.json").write_bytes(b"{")
    found = agreement(run)
    assert found.compared == 1
    assert found.differing == []
    assert found.largest_differences == {"toploc.mantissa_mean": 0.002}
    assert [one.model_dump() for one in found.validators] == [
        {"name": "ann", "engine": "transformers", "batch": 64, "judged": 1},
        {"name": "ben", "engine": "vllm", "batch": 7, "judged": 1},
    ]


def compared(root: Path, other: Verdict) -> Agreement:
    """Of one file that an honest validator accepts, and the other judges so."""
    run = plan(root)
    keep(run, "ann", "7-aa", VERDICT_ACCEPTED)
    keep(run, "ben", "7-aa", other, "vllm")
    return agreement(run)


def test_a_difference_is_told_and_makes_a_run_not_good(tmp_path: Path) -> None:
    found = compared(tmp_path, BAD)
    (one,) = found.differing
    assert one.submission == 7
    assert one.codes == {"ann": "accept", "ben": "reject: weights"}
    assert one.differences[0] == "toploc.code reject: weights against our accept"
    said = "honest validators differ on file 7: ann says accept, ben says reject: weights"
    assert list(problems(changed(GOOD, agreement=found))) == [said]


def test_accept_and_unsure_have_the_same_consequence_and_rounding_decides_between_them(tmp_path: Path) -> None:
    assert compared(tmp_path, replace(ALSO_GOOD, code=Code.UNSURE)).differing == []
