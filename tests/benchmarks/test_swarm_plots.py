"""Tables and picture of the swarm's comparison say what the runs say, of the seeds that have all mixes."""

from pathlib import Path
from typing import Any

from benchmarks.swarm_plots import (
    PUBLISHED,
    by_mix,
    crowds_table,
    draw,
    hostile_table,
    mixed_table,
    mixes_table,
    smoothed,
    unrationed_table,
    write,
)


def run(mix: str, seed: int, cumulative: float) -> dict[str, Any]:
    held_out, series = [[0, 0.0], [12, cumulative / 40]], [cumulative / 12] * 12
    return {
        "mix": mix, "seed": seed, "cumulative": cumulative, "held_out": held_out, "series": series,
        "signal": 0.5, "spread": 0.01,
    }  # fmt: skip


RUNS = [run(mix, seed, 10.0 + seed * (mix == "4/4")) for seed in (1, 3) for mix in PUBLISHED]


def test_means_are_over_the_seeds_that_have_all_mixes() -> None:
    found = mixes_table([*RUNS, run("4/4", 9, 1000.0)])
    assert "| 4/4 | 11.00, 13.00 | 12.00 | +20.0% | 0.300 | 50% | 0.010 | 1093.31 | +94.6% |" in found
    assert "| 8/0 | 10.00, 10.00 | 10.00 | +0.0% |" in found
    assert {one["seed"] for rows in by_mix([*RUNS, run("4/4", 9, 1.0)]).values() for one in rows} == {1, 3}
    assert "Not all mixes" in mixes_table(RUNS[:3])


def test_a_model_gains_what_its_seeds_gain() -> None:
    ends = {("8/0", 1): 0.1, ("4/4", 1): 0.3, ("8/0", 3): 0.2, ("4/4", 3): 0.1}
    ends |= {("4/4, defended", seed): 0.25 for seed in (1, 3)}
    rows = [
        {"mix": mix, "seed": seed, "start": {"a": seed / 100, "b": 0.5}, "end": {"a": end, "b": 0.5}}
        for (mix, seed), end in ends.items()
    ]
    found = {
        "seeds": [1, 3], "alone": {"a": 0.15, "b": 0.5}, "shared": {"a": 0.2, "b": 0.5},
        "defended": {"a": 0.25, "b": 0.5}, "gains": {"a": 0.05, "b": 0.0}, "gains_mean": {"a": 0.04, "b": 0.01},
        "gains_defended": {"a": 0.1, "b": 0.0}, "gains_mean_defended": {"a": 0.03, "b": 0.0}, "weakest": "a",
        "log_odds": {"a": [1.3, -0.7], "b": [0.0, 0.0]}, "log_odds_defended": {"a": [1.0, 0.2], "b": [0.0, 0.0]},
        "rows": rows,
    }  # fmt: skip
    lines = mixed_table(found).splitlines()
    a, b = "| a (weakest alone) | 0.020 | 0.150", "| b | 0.500 | 0.500"
    assert lines[2:] == [
        f"{a} | as in the paper | 0.200 | +0.050 | +33% | +0.30 (1.00) | +0.200, -0.100 | +0.040 |",
        f"{a} | with the defences | 0.250 | +0.100 | +67% | +0.60 (0.40) | +0.150, +0.050 | +0.030 |",
        f"{b} | as in the paper | 0.500 | +0.000 | +0% | +0.00 (0.00) | +0.000, +0.000 | +0.010 |",
        f"{b} | with the defences | 0.500 | +0.000 | +0% | +0.00 (0.00) | +0.000, +0.000 | +0.000 |",
    ]
    assert "No seed" in mixed_table({"rows": []})


def test_crowds_are_a_row_each() -> None:
    one = {
        "name": "flood", "keys": 0.25, "hostile_looked": 0.5, "hostile": 0.125, "full": 1.0, "variance_ratio": 1.04,
        "milliseconds": 12.4,
    }  # fmt: skip
    assert crowds_table({"crowds": [one]}).splitlines()[2:] == ["| flood | 25% | 50% | 12% | 100% | 1.04 | 12 |"]


def test_attacks_are_a_row_each() -> None:
    one = {
        "name": "phrase", "members": 8, "seeds": 2, "success": 0.01, "success_undefended": 0.5, "without": 0.002,
        "elsewhere": 0.003,
        "hostile_share": 0.25, "hostile_share_undefended": 0.75, "reward_ratio": 0.985,
        "reward_ratio_undefended": 0.5, "each": [0.97, 1.0], "seeds_undefended": 1, "seeds_unrationed": 0,
        "success_each": [0.0, 0.02], "without_each": [0.004, 0.0], "reward_ratio_unseen": 1.01, "adds": [0.008, 0.0123],
    }  # fmt: skip
    (line,) = hostile_table({"hostile": {"attacks": [one]}}).splitlines()[2:]
    assert line == (
        "| phrase | 1, 2 | 50.0% | 1.0% (0.2%, 0.3%) | 0.0%, 0.4%; 2.0%, 0.0% | +0.80 ± 1.23 | 75%, 25% | 0.50 | "
        "0.98 | 0.97, 1.00 | 1.01 |"
    )
    assert len(unrationed_table({"hostile": {"attacks": [one]}}).splitlines()) == 2
    rationed = one | {"seeds_unrationed": 1} | {
        f"{key}_unrationed": value
        for key, value in {
            "success": 0.002, "without": 0.001, "success_each": [0.002], "without_each": [0.001],
            "hostile_share": 0.27, "reward_ratio": 0.99, "each": [0.99],
        }.items()
    }  # fmt: skip
    (line,) = unrationed_table({"hostile": {"attacks": [rationed]}}).splitlines()[2:]
    assert line == "| phrase | 1 | 0.2% (0.1%) | 0.2%, 0.1% | 27% | 0.99 | 0.99 |"


def test_curves_are_means_of_the_rounds_before() -> None:
    assert smoothed([1.0] * 3 + [2.0] * 17)[-1] == 2.0
    assert smoothed([0.0, 1.0, 2.0]) == [0.0, 0.5, 1.0]


def test_the_table_stands_between_its_marks_and_there_is_a_picture(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    begin, end = "<!-- mixes: written by benchmarks/swarm_plots.py -->", "<!-- mixes: end -->"
    page.write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    write(page, "mixes", "new")
    assert page.read_text() == f"before\n{begin}\nnew\n{end}\nafter\n"
    draw(RUNS, tmp_path / "images" / "swarm.png")
    assert (tmp_path / "images" / "swarm.png").read_bytes().startswith(b"\x89PNG")
