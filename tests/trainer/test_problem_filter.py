"""The offline filter keeps what is solved sometimes, goes on after a kill, and can be made again by anyone."""

import json
from pathlib import Path
from typing import Any

import pytest

from environments.pool import PoolEnvironments
from protocol.config import PoolConfig, candidate_seed
from protocol.encoding import sha256_hex
from protocol.errors import ConfigError
from tests.cli.muster import Muster
from tests.trainer.helpers import small_model
from tests.trainer.solver import SUMS_POOL, Solver
from tests.validator import tiny
from trainer.data import problem_filter
from trainer.data.problem_filter import FilterPlan, FilterReport, run_filter

CANDIDATES = 40
SEEDS = [candidate_seed(number) for number in range(CANDIDATES)]
PLAN = FilterPlan(CANDIDATES)


@pytest.fixture(scope="module")
def base() -> Path:
    return tiny.model_folder()


def solver(base: Path) -> Solver:
    """Candidate n is solved in n mod 9 of eight tries."""
    environments = PoolEnvironments.of(SUMS_POOL, base)
    return Solver(environments, base, lambda seed, number: number < SEEDS.index(seed) % 9).know(SEEDS)


def filtered(engine: Any, base: Path, journal: Path, plan: FilterPlan = PLAN, **options: Any) -> FilterReport:
    return run_filter(engine, SUMS_POOL, base, plan, journal, **options)


def test_what_is_solved_in_an_eighth_to_three_quarters_of_the_tries_is_kept(base: Path, tmp_path: Path) -> None:
    report = filtered(solver(base), base, tmp_path / "tries.jsonl")
    assert report.problems.kept_candidates == tuple(number for number in range(CANDIDATES) if 1 <= number % 9 <= 6)
    assert (report.kept, report.too_hard, report.too_easy) == (27, 5, 8)
    assert sha256_hex((tmp_path / "tries.jsonl").read_bytes()) == report.problems.report


@pytest.mark.parametrize("batch", [8, 24, 64, 1000])
def test_the_batch_does_not_change_what_is_asked(base: Path, tmp_path: Path, batch: int) -> None:
    one, other = solver(base), solver(base)
    assert filtered(one, base, tmp_path / "a", batch=batch) == filtered(other, base, tmp_path / "b", batch=8)
    assert one.asked == other.asked
    assert len({request.noise_key for request in one.asked}) == CANDIDATES * 8


@pytest.mark.parametrize("cut", [1, 40, 700, 1000])
def test_an_interrupted_filter_goes_on_and_ends_the_same(base: Path, tmp_path: Path, cut: int) -> None:
    whole = filtered(solver(base), base, tmp_path / "whole")
    (tmp_path / "cut").write_bytes((tmp_path / "whole").read_bytes()[:-cut])
    again = solver(base)
    assert filtered(again, base, tmp_path / "cut", batch=8) == whole
    assert (tmp_path / "cut").read_bytes() == (tmp_path / "whole").read_bytes()
    assert len(again.asked) < CANDIDATES * 8, "what was tried is not tried again"


def test_a_finished_filter_needs_no_engine_and_other_bounds_judge_the_same_tries(base: Path, tmp_path: Path) -> None:
    whole = filtered(solver(base), base, tmp_path / "tries.jsonl")
    again = solver(base)
    assert filtered(again, base, tmp_path / "tries.jsonl") == whole
    strict = FilterPlan(CANDIDATES, lowest=0.5, highest=0.5)
    report = filtered(again, base, tmp_path / "tries.jsonl", strict)
    assert report.problems.kept_candidates == tuple(number for number in range(CANDIDATES) if number % 9 == 4)
    assert not again.loaded
    assert not again.asked


def test_a_journal_of_another_filter_is_refused(base: Path, tmp_path: Path) -> None:
    filtered(solver(base), base, tmp_path / "tries.jsonl")
    with pytest.raises(ConfigError, match="belongs to another filter: samples differs"):
        filtered(solver(base), base, tmp_path / "tries.jsonl", FilterPlan(CANDIDATES, samples=4))
    other = small_model(tmp_path / "other", seed=1)
    with pytest.raises(ConfigError, match="belongs to another filter: model differs"):
        filtered(solver(base), other, tmp_path / "tries.jsonl")


def test_a_journal_may_hold_every_character(tmp_path: Path) -> None:
    """Of which Python takes some for the end of a line."""
    journal, head = tmp_path / "tries.jsonl", {"prompt": "one\u2028two\x85three", "samples": 4}
    assert problem_filter._resume(journal, head) == []
    with journal.open("a") as file:
        file.write('{"candidate":0,"solved":3}\n{"cand')
    assert problem_filter._resume(journal, head) == [3]


@pytest.mark.parametrize("notes", [b"buy milk\n", b"[1]\n", b"7\n", b"\xff\xfe\n", b"[" * 100_000 + b"\n"])
def test_a_file_that_is_no_journal_is_left_alone(base: Path, tmp_path: Path, notes: bytes) -> None:
    (tmp_path / "notes").write_bytes(notes)
    with pytest.raises(ConfigError, match="is not a filter's journal"):
        filtered(solver(base), base, tmp_path / "notes")
    assert (tmp_path / "notes").read_bytes() == notes


@pytest.mark.parametrize("line", ['{"candidate": 0}', '{"candidate": 0, "solved": 99}', '{"solved": true}', "{}"])
def test_a_journal_with_a_line_that_no_filter_wrote_is_refused(base: Path, tmp_path: Path, line: str) -> None:
    journal = tmp_path / "tries.jsonl"
    filtered(solver(base), base, journal)
    head = journal.read_text().splitlines()[0]
    journal.write_text(f"{head}\n{line}\n")
    with pytest.raises(ConfigError, match="is damaged"):
        filtered(solver(base), base, journal)


def command(base: Path, folder: Path, candidates: int) -> list[object]:
    """`muster env filter`, which writes `filtered.json`."""
    (folder / "pool.json").write_text(SUMS_POOL.model_dump_json())
    files = ["--pool-config", folder / "pool.json", "--weights", base, "--out", folder / "filtered.json"]
    return ["env", "filter", *files, "--candidates", candidates, "--engine", "transformers"]


def test_a_model_that_solves_nothing_keeps_nothing_and_says_so(base: Path, tmp_path: Path) -> None:
    """The command as a person types it, with a random model."""
    said = Muster(tmp_path).refused(*command(base, tmp_path, 4), "--samples", "2")
    assert "none of 4 problems is solved in 12.5% to 75.0% of the tries" in said
    assert not (tmp_path / "filtered.json").exists()
    lines = (tmp_path / "filtered.tries.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines[1:]] == [{"candidate": n, "solved": 0} for n in range(4)]


def test_the_command_writes_a_pool_configuration_that_draws_from_what_was_kept(base: Path, tmp_path: Path) -> None:
    whole = filtered(solver(base), base, tmp_path / "filtered.tries.jsonl")
    said = Muster(tmp_path).ok(*command(base, tmp_path, CANDIDATES), "--json").json
    assert (said["kept"], said["too_hard"], said["too_easy"], said["share"]) == (27, 5, 8, 0.675)
    assert PoolConfig.load(tmp_path / "filtered.json").environments[0].problems == whole.problems
