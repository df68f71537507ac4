"""The price of cheating: exact expectations, and a motive for every attack of the table."""

import json
from fractions import Fraction

import pytest

from benchmarks.attack_rows import specs
from benchmarks.audits import CLOSE, rows_wanted
from benchmarks.price import RESULTS, cost_of_checking, outcome_of, priced, shown, stakes_of, worst_life
from benchmarks.price_gains import Costs, motive
from benchmarks.price_table import DOCUMENT, tables
from benchmarks.price_value import (
    AtStake,
    Gain,
    break_even,
    captured,
    expected,
    files_until,
    least_stake,
    over_life,
    over_lives,
)
from chain.contracts import MOST_FILES

STAKES = AtStake(pay=1_000, stake=50_000, slash_bps=10_000, malformed=400)
ALL, HALF_MORE = Gain(saved=Fraction(1)), Gain(extra=Fraction(1, 2))
WHOLE = Fraction(1)


def test_a_saving_is_kept_and_extra_pay_only_by_who_is_not_found() -> None:
    quarter = Fraction(1, 4)
    assert expected(ALL, WHOLE, Fraction(0), "slashed", STAKES) == 1_000
    assert expected(ALL, WHOLE, quarter, "slashed", STAKES) == 1_000 - quarter * 51_000
    assert expected(HALF_MORE, WHOLE, quarter, "slashed", STAKES) == 375 - quarter * 51_000
    assert expected(ALL, Fraction(1, 10), quarter, "fined", STAKES) == 100 - quarter * 1_400
    assert expected(ALL, WHOLE, WHOLE, "fined", STAKES) == -400


@pytest.mark.parametrize("share", [WHOLE, Fraction(1, 16)])
@pytest.mark.parametrize("gain", [ALL, HALF_MORE, Gain(Fraction(3, 4), Fraction(1, 3))])
def test_at_the_break_even_a_cheat_is_worth_nothing(gain: Gain, share: Fraction) -> None:
    even = break_even(gain, share, "slashed", STAKES)
    assert expected(gain, share, even, "slashed", STAKES) == 0
    assert expected(gain, share, even + Fraction(1, 10**9), "slashed", STAKES) < 0


def test_the_least_stake_is_the_least() -> None:
    found = Fraction(1, 37)
    least = least_stake(ALL, WHOLE, found, STAKES)
    assert least is not None
    for stake, loses in ((least, True), (least - 1, False)):
        held = AtStake(STAKES.pay, stake, STAKES.slash_bps, STAKES.malformed)
        assert (expected(ALL, WHOLE, found, "slashed", held) < 0) is loses
    assert least_stake(ALL, WHOLE, Fraction(0), STAKES) is None
    assert least_stake(ALL, Fraction(1, 16), WHOLE, STAKES) == 0, "the file's own pay is more than it spared"
    halved = AtStake(STAKES.pay, STAKES.stake, 5_000, STAKES.malformed)
    assert least_stake(ALL, WHOLE, found, halved) == 72_001


def test_a_life_is_its_files_and_one_slash() -> None:
    assert over_life(ALL, WHOLE, 3, "slashed", STAKES) == 3_000 - 51_000
    assert over_life(HALF_MORE, WHOLE, 3, "slashed", STAKES) == 1_000 - 51_000


def test_files_until_found() -> None:
    assert files_until(Fraction(0), Fraction(99, 100)) is None
    assert files_until(Fraction(1), Fraction(99, 100)) == 1
    for found in (Fraction(1, 2), Fraction(1, 100), Fraction(9, 10)):
        files = files_until(found, Fraction(99, 100))
        assert files is not None
        assert (1 - found) ** files <= Fraction(1, 100) < (1 - found) ** (files - 1)


def test_a_captured_committee() -> None:
    assert captured(3, 2, 3) == 1
    assert captured(4, 2, 3) == Fraction(1, 2)
    assert float(captured(300, 100, 3)) == pytest.approx(0.2585, abs=1e-4)


def test_every_attack_of_the_table_has_a_motive_that_is_a_share() -> None:
    costs = Costs(Fraction(3, 10), 8)
    for spec in specs(quick=False):
        if spec.table in ("attacks", "stale"):
            gain = motive(spec.label).gain(costs, spec.dtype)
            assert 0 <= gain.saved <= 1
            assert 0 <= gain.extra <= 1
    assert motive("padding=1").gain(costs, "float32").saved == Fraction(7, 10)
    assert motive("weights-int8").gain(costs, "bfloat16").saved == Fraction(1, 2)


def test_stakes_are_the_shipped_terms() -> None:
    stakes = stakes_of("base-sepolia")
    assert (stakes.pay, stakes.stake, stakes.slash_bps) == (6_553_600_000, 250 * 10**9, 10_000)


def test_attacks_of_which_more_files_are_measured_are_in_the_table() -> None:
    assert CLOSE.keys() <= {(one.name, one.dtype) for one in rows_wanted(quick=False)}


def test_outcomes() -> None:
    assert outcome_of({"accept": 4}) == outcome_of({"unsure": 4}) == "nothing"
    assert outcome_of({"accept": 3, "reject: weights": 1}) == "slashed"
    assert outcome_of({"malformed": 4}) == outcome_of({"unavailable": 4}) == "fined"


def test_what_is_never_found_pays_and_what_is_always_found_does_not() -> None:
    def row(name: str, code: str, found: int) -> dict[str, object]:
        counts = [[found, 32]] * 5
        return {"name": name, "dtype": "bfloat16", "codes": {code: 32}, "whole": counts, "mixed": counts}

    rows = [row("weights-int8", "unsure", 0), row("gibberish", "reject: sampling", 32), row("seed", "unsure", 0)]
    cost = cost_of_checking({"dtype": "bfloat16", "batch": 16, "ratio": 3.2, "ratio_quarter": 10.0})
    assert [one["share"] for one in cost["rates"].values()] == [0.00933, 0.0279, 0.102, 0.312]
    measured = {"dtype": "bfloat16", "batch": 16, "ratio": 3.2, "ratio_quarter": 10.0, "row_at": {"1024": 0.5}}
    rates = cost_of_checking(measured)["rates"]
    assert [one["share"] for one in rates.values()] == [0.0117, 0.0279, 0.102, 0.312], "measured, not projected"
    assert rates["1024"]["without_last"] == 0.00781
    lives = [
        {
            "name": "weights-int8",
            "pair": "a → b",
            "audit": 65536,
            "nodes": 100,
            "found": 100,
            "files_median": 2,
            "files_p99": 3,
        }
    ]
    found = priced({"attacks": rows}, lives, cost)
    assert found["pays"]["local"]["4096"] == ["weights-int8 (bfloat16)"]
    assert found["least"]["local"]["4096"]["without"] == ["weights-int8 (bfloat16)"]
    by_name = {one["name"]: one["values"]["local"]["4096"] for one in found["attacks"]}
    assert by_name["weights-int8"]["value"] == 0.4096
    assert (by_name["seed"]["pays"], by_name["seed"]["loss"]) == (False, False)
    assert by_name["gibberish"]["loss"]
    assert found["pays_with_law"]["local"]["4096"] == found["pays"]["local"]["4096"], "nothing was measured at 1/16"
    assert found["pays"]["local"]["65536"] == ["weights-int8 (bfloat16)"]
    assert found["pays_with_law"]["local"]["65536"] == [], "its node is found with the third file"
    whole = {one["name"]: one["values"]["local"]["65536"] for one in found["attacks"]}
    assert whole["weights-int8"]["life"] == found["evidence"][0]["values"]["local"] < 0
    assert (whole["seed"]["life"], by_name["weights-int8"]["life"]) == (None, None)
    sure = 0.9455  # 99 of 100, at the 95% limit
    worth = sure * (3 * 0.4096 - 0.8192 - 200) + (1 - sure) * 256 * 0.4096
    assert found["evidence"][0]["values"]["local"] == pytest.approx(worth, rel=1e-3)


def test_a_cheat_is_worth_what_the_worst_seen_engine_gains_by_it() -> None:
    def life(pair: str, value: float | None) -> dict[str, object]:
        return {"pair": pair, "values": {"local": value}}

    a, b = life("a to a", -200.0), life("a to b", None)
    assert worst_life([a, b], "local") == -200, "a jury has the worker's engine"
    assert worst_life([a, b, life("b to b", -90.0), life("b to a", -10.0)], "local") == -90
    assert worst_life([a, life("b to b", None)], "local") is None, "nothing shows those of the other engine"
    assert worst_life([], "local") is None


def test_a_life_that_no_case_can_name_is_worth_nothing_known() -> None:
    row = {"nodes": 100, "found": 100, "files_p99": MOST_FILES}
    assert shown(row) == Fraction(9455, 10_000)
    assert shown(row | {"files_p99": MOST_FILES + 1}) is None, "seen, but by more files than a case names"
    half = shown(row | {"found": 50, "files_p99": 17})
    assert half is not None
    assert half < Fraction(1, 2), "nor was every node found"


def test_lives_that_are_not_found_are_kept() -> None:
    third = Fraction(1, 3)
    assert over_lives(ALL, WHOLE, WHOLE, 3, 256, STAKES) == over_life(ALL, WHOLE, 3, "slashed", STAKES)
    assert over_lives(ALL, WHOLE, Fraction(0), 3, 256, STAKES) == 256_000
    assert over_lives(ALL, WHOLE, third, 3, 256, STAKES) == third * (3_000 - 51_000) + (1 - third) * 256_000


def test_the_document_has_the_tables_of_the_result() -> None:
    found = json.loads((RESULTS / "price.json").read_text())
    assert tables(found) in DOCUMENT.read_text()
