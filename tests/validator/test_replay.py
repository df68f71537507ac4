"""Where verdicts differ."""

import math

from protocol.verdict import Code, Finding, Verdict, combine
from validator.replay import Difference, differences, largest


def verdict(*findings: Finding) -> Verdict:
    return Verdict(
        chain_id=1,
        pools="0x" + "11" * 20,
        pool=1,
        sequence=7,
        node="0x" + "22" * 20,
        step=3,
        counter=0,
        sha256="00" * 32,
        lane_seed="00" * 32,
        config_hash="00" * 32,
        code=combine(findings),
        engine={"name": "transformers"},
        audited=[0],
        findings=findings,
    )


def test_equal_verdicts_do_not_differ() -> None:
    one = verdict(Finding("toploc", Code.ACCEPT, {"mantissa_mean": 0.5, "worst": math.nan}))
    assert differences(one, one) == []


def test_codes_come_before_measurements_and_missing_checks_are_told() -> None:
    theirs = verdict(Finding("proofs", Code.REJECT_WEIGHTS, {"count": 3}, "bad modulus"))
    ours = verdict(Finding("proofs", Code.ACCEPT, {"count": 4}), Finding("toploc", Code.ACCEPT, {"mantissa_mean": 0.5}))
    assert differences(theirs, ours) == [
        Difference("proofs", "code", "reject: weights", "accept"),
        Difference("toploc", "code", None, "accept"),
        Difference("proofs", "count", 3, 4),
        Difference("toploc", "mantissa_mean", None, 0.5),
    ]
    assert str(differences(theirs, ours)[3]) == "toploc.mantissa_mean nothing against our 0.5"


def test_the_largest_distance_of_each_figure_counts() -> None:
    found = [
        Difference("toploc", "mantissa_mean", 0.5, 0.25),
        Difference("toploc", "mantissa_mean", 0.5, 0.625),
        Difference("toploc", "code", "accept", "unsure"),
        Difference("sampling", "gap", "inf", 0.0),
        Difference("eos", "rows", [1], [2]),
        Difference("sampling", "miss_rate", 0, 0.5),
        Difference("sampling", "miss_rate", 10**400, 0.5),
    ]
    assert largest(found) == {"sampling.miss_rate": 0.5, "toploc.mantissa_mean": 0.25}
