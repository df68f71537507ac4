"""When a run counts as good."""

from typing import Any, TypeVar

import pytest
from pydantic import BaseModel

from demo.results import highlights, problems
from orchestrator.summary import Agreement, CheaterSummary, FileCounts, RunSummary, ValidatorSummary
from protocol.api.run import CanaryEntry, DisputeEntry

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
SHOWN: dict[str, Any] = {
    "ledger_matches_chain": True,
    "escrow_balanced": True,
    "honest_rejected": 0,
    "cheaters": [CHEATER],
    "agreement": AGREEMENT,
    "submissions": FileCounts(accepted=8, rejected=2, pending=0, total=10),
    "tokens_verified": 12_345,
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
    ],
)
def test_each_problem_alone_makes_a_run_not_good(change: dict[str, Any], said: str) -> None:
    assert list(problems(changed(GOOD, **change))) == [said]


def test_a_run_is_summed_up_in_a_few_lines() -> None:
    assert list(highlights(GOOD)) == [
        "held-out reward not measured → 0.500 in 2 steps, 61 s",
        "files: 8 accepted, 2 refused; 12,345 tokens verified and paid",
        "cheater 0xM: slashed and ejected (reject: weights), 0 rollouts trained",
        "dispute won: the jury overturned the wrong outcome of file 3",
        "canaries: 2 opened, 1 accepted by a lazy validator, which paid",
        "honest validators (vllm with batch 16): 3 files judged by more than one, 0 verdicts differ",
        "ledger equals chain: yes, to the last grain; escrow balances: yes",
    ]
