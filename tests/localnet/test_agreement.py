"""What a run says of its honest validators' agreement."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from localnet.agreement import agreement
from localnet.plan import DemoPlan, ValidatorSpec
from localnet.results import problems
from orchestrator.dashboard.results import RunSummary
from protocol.verdict import Code, Finding, Verdict
from tests.validator.test_compare import verdict

GOOD = verdict(Finding("toploc", Code.ACCEPT, {"mantissa_mean": 0.001}))
ALSO_GOOD = verdict(Finding("toploc", Code.ACCEPT, {"mantissa_mean": 0.003}))
BAD = verdict(Finding("toploc", Code.REJECT_WEIGHTS, {"mantissa_mean": 1.5}, "too far"))


def plan(root: Path) -> DemoPlan:
    validators = (
        ValidatorSpec("ann", 2),
        ValidatorSpec("ben", 2, engine="vllm", batch=7),
        ValidatorSpec("eve", 3, "colluder"),
    )
    return DemoPlan(root, 1, 4, 1, 2, 3, (), validators)


def keep(plan: DemoPlan, name: str, file: str, found: Verdict, engine: str = "transformers") -> None:
    folder = plan.home(f"validator-{name}") / "chain" / "verdicts"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{file}.json").write_bytes(replace(found, engine={"name": engine}).canonical())


def test_only_what_two_honest_ones_judged_is_compared(tmp_path: Path) -> None:
    run = plan(tmp_path)
    keep(run, "ann", "7-aa", GOOD)
    keep(run, "ben", "7-aa", ALSO_GOOD, "vllm")
    keep(run, "eve", "7-aa", BAD)
    keep(run, "ann", "8-aa", GOOD)
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


def test_a_difference_is_told_and_makes_a_run_not_good(tmp_path: Path) -> None:
    run = plan(tmp_path)
    keep(run, "ann", "7-aa", GOOD)
    keep(run, "ben", "7-aa", BAD, "vllm")
    found = agreement(run)
    (one,) = found.differing
    assert one.submission == 7
    assert one.codes == {"ann": "accept", "ben": "reject: weights"}
    assert one.differences[0] == "toploc.code reject: weights against our accept"
    fine: dict[str, Any] = {"ledger_matches_chain": True, "escrow_balanced": True, "honest_rejected": 0, "cheaters": []}
    assert list(problems(RunSummary.model_construct(**fine, agreement=found, safeguards=None))) == [
        "honest validators differ on file 7: ann says accept, ben says reject: weights"
    ]


def test_a_run_without_verdicts_compares_nothing(tmp_path: Path) -> None:
    assert agreement(plan(tmp_path)).compared == 0
