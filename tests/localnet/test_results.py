"""When a run counts as good."""

from typing import Any, TypeVar

import pytest
from pydantic import BaseModel

from localnet.results import highlights, problems
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
from tests.conftest import GRAINS

T = TypeVar("T", bound=BaseModel)

CHEATER = CheaterSummary(
    address="0xM",
    slashed=True,
    slashed_grains=7,
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
CANARIES: list[dict[str, Any]] = [{"slashed": {}}, {"slashed": {"2": 1}}]
SAFEGUARDS = Safeguards(
    attested=60,
    late=[0],
    late_fines=GRAINS,
    opted_in=11,
    needed=11,
    silent=[SilentCommittee(lane=4, absent=[2, 9], fined=400_000_000)],
    dodged=[DodgedCanary(submission=96, seat=3, slashed=20 * GRAINS)],
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
        ({"safeguards": changed(SAFEGUARDS, attested=0)}, "no upload was attested"),
        ({"safeguards": changed(SAFEGUARDS, late=[])}, "the file that was never uploaded is not void and fined"),
        ({"safeguards": changed(SAFEGUARDS, late_fines=0)}, "the file that was never uploaded is not void and fined"),
        ({"safeguards": changed(SAFEGUARDS, opted_in=10)}, "10 seats opted in, the pool needs 11"),
        (
            {"safeguards": changed(SAFEGUARDS, silent=[changed(SAFEGUARDS.silent[0], fined=0)])},
            "the silent seats [2, 9] of lane 4 paid nothing",
        ),
        (
            {"safeguards": changed(SAFEGUARDS, dodged=[changed(SAFEGUARDS.dodged[0], slashed=0)])},
            "seat 3 dodged canary 96",
        ),
    ],
)
def test_each_problem_alone_makes_a_run_not_good(change: dict[str, Any], said: str) -> None:
    assert list(problems(changed(GOOD, **change))) == [said]


def test_what_the_draw_of_seats_did_not_bring_about_is_reported_and_fails_no_run() -> None:
    run = changed(GOOD, steps=30, safeguards=changed(SAFEGUARDS, silent=[], dodged=[]))
    assert list(problems(run)) == []
    assert [line.rpartition(": ")[2] for line in highlights(run) if line.startswith("not shown in this run")] == [
        "a silent committee that is replaced",
        "a lazy seat that disputes the canary it accepted",
    ]


def test_a_run_is_summed_up_in_a_few_lines() -> None:
    assert list(highlights(GOOD)) == [
        "held-out reward not measured → 0.500 in 2 steps, 61 s",
        "files: 8 accepted, 2 refused; 12,345 tokens verified and paid",
        "trainer idle 50%, after the first step 40%: judging 61 s, confirming 9 s",
        "cheater 0xM: slashed and ejected (reject: weights), 0 rollouts trained",
        "dispute won: the jury overturned the wrong outcome of file 3",
        "canaries: 2 opened, 1 accepted by a lazy validator, which paid",
        "uploads: 60 files attested before their committee was drawn",
        "file 0 was never uploaded: void, its node paid 1 MUS",
        "seats: 11 opted into the pool, which needs 11",
        "lane 4: seats [2, 9] kept silent, paid 0.4 MUS, and were replaced",
        "canary 96: seat 3 had disputed it to dodge, and lost 20 MUS",
        "honest validators (vllm with batch 16): 3 files judged by more than one, 0 verdicts differ",
        "ledger equals chain: yes, to the last grain; escrow balances: yes",
    ]
