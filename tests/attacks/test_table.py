"""The table of attacks: it misses none of the list, judges really, and keeps what it finished."""

import json
from functools import cache
from pathlib import Path

import pytest

from attacks.registry import REGISTRY
from benchmarks.support.offline_pool import BFLOAT16, FLOAT32, OfflinePool, Remembering, work_of
from benchmarks.verification.attacks import LEARNING_RATES, Spec, specs, table
from engines.hf import TransformersEngine
from protocol.config import WorkConfig
from tests.validator import tiny
from worker.produce import Producer

WORK = WorkConfig(problems_per_file=2, samples_per_problem=2, max_new_tokens=40, max_prompt_tokens=96)


@cache
def offline(dtype: str = FLOAT32) -> OfflinePool:
    return OfflinePool.of(tiny.model_folder(), dtype, tiny.CONFIG.model, WORK)


def producer(engine: TransformersEngine, name: str = "") -> Producer:
    made = REGISTRY[name].build(offline().config, engine, 0.01) if name else Producer(offline().config, engine)
    made.load(tiny.model_folder())
    return made


def test_the_table_has_every_attack_those_with_strengths_at_several_and_bf16_those_on_arithmetic() -> None:
    found = {spec.label for spec in specs(quick=False) if spec.dtype == FLOAT32}
    assert {f"weights-noise=0.{'0' * zeros}1" for zeros in (1, 2, 3)} <= found
    assert {f"weights-stale={age} lr={rate:g}" for rate in LEARNING_RATES for age in (1, 2, 4)} <= found
    proven_anew = ("altered-prompt", "token-swap", "early-eos", "padding", "edited-copy")
    assert {"reroll=4", "inflated-units=1.5", *(f"{name}=1" for name in proven_anew)} <= found
    for quick in (True, False):
        assert set(REGISTRY) <= {spec.name for spec in specs(quick)}
    found = {spec.name for spec in specs(quick=False) if spec.dtype == BFLOAT16}
    assert {"weights-noise", "weights-stale", "weights-int8", "fabricate", "greedy", "reroll", "token-swap"} <= found


@pytest.mark.parametrize("name", ["", "weights-noise"])
def test_a_remembered_file_gets_the_same_verdict_document(name: str) -> None:
    known = offline().known
    plain = producer(TransformersEngine(), name).make(work_of(5))
    fresh = producer(Remembering(known), name).make(work_of(5))
    size = len(known)
    again = producer(Remembering(known), name).make(work_of(5))
    assert len(known) == size, "the second file was generated anew"
    assert plain.data == fresh.data == again.data
    documents = {offline().verdict(made, work_of(5)).canonical() for made in (plain, fresh, again)}
    assert len(documents) == 1


def test_weights_are_told_apart_in_memory() -> None:
    known = offline().known
    honest = producer(Remembering(known)).make(work_of(6))
    noisy = producer(Remembering(known), "weights-noise").make(work_of(6))
    assert honest.rollouts[0].logprobs != noisy.rollouts[0].logprobs


def test_a_row_says_how_clearly_and_by_what() -> None:
    lines: list[str] = []
    honest = offline().row("honest", offline().honest(), 3, lines.append)
    assert (honest["detected"], honest["same_text"], honest["codes"]) == (0, 3, {"accept": 3})
    assert honest["margin"] < 0.5
    noisy = offline().row("noise", producer(offline().engine(), "weights-noise"), 3, lines.append)
    assert (noisy["detected"], noisy["same_text"]) == (3, 0)
    assert noisy["margin"] >= noisy["margin_low"] > 1
    zero = offline().row("zero", producer(offline().engine(), "proofs-zero"), 2, lines.append)
    assert (zero["detected"], zero["by"], zero["margin"]) == (2, "proofs", None)
    assert len(lines) == 3


def test_finished_rows_are_kept_and_resumed(tmp_path: Path) -> None:
    lines: list[str] = []
    wanted = [Spec("attacks", FLOAT32, "proofs-zero"), Spec("honest", FLOAT32, "honest")]
    first = table(tiny.model_folder(), wanted, 1, lines.append, False, tmp_path)
    kept = tmp_path / "attacks-1.jsonl"
    whole = kept.read_text()
    assert len(whole.splitlines()) == 2
    kept.write_text(whole[: len(whole) - 9])  # a run killed in the middle of a line
    again = table(tiny.model_folder(), wanted, 1, lines.append, True, tmp_path)
    assert again == first
    assert "1 of 2 rows are kept from before" in lines
    rows = [line for line in kept.read_text().splitlines() if line]
    assert json.loads(rows[-1])["row"] == first["honest"][0]
    assert table(tiny.model_folder(), wanted, 2, lines.append, True, tmp_path)["honest"][0]["submissions"] == 2
