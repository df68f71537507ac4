"""A zoo of honest engines, of which none is ever slashed; and that histories drawn side by side add up as a node's."""

import numpy as np
import pytest

from benchmarks.verification.evidence import (
    RATES,
    VARY,
    Row,
    SecondPass,
    draws_of,
    histories,
    measured,
    paid,
    verifier_of,
)
from calibration.null_model import pair_null_model
from engines.hf import TransformersEngine
from protocol.config import BF16_CHECKS
from protocol.evidence.figures import BETS, FIGURES
from protocol.evidence.null_model import NodeEvidence
from protocol.seeds import AUDIT_EVERYTHING
from tests.validator import tiny
from worker.produce import Producer

WORK = tiny.CONFIG.work.model_copy(update={"problems_per_file": 8, "samples_per_problem": 4})
CONFIG = tiny.CONFIG.model_copy(update={"work": WORK, "checks": BF16_CHECKS})
OWN_PASS = "own second pass"
ZOO = ("batches of 1", "batches of 20", OWN_PASS, *VARY)


def files_of(name: str, count: int, first: int = 0) -> list[Row]:
    """What the usual engine measures of files of an honest engine in bfloat16."""
    engine = TransformersEngine("bfloat16", max_batch=1 if name == "batches of 1" else 20)
    producer = SecondPass(CONFIG, engine, 0) if name == OWN_PASS else Producer(CONFIG, engine)
    producer.load(tiny.model_folder())
    VARY.get(name, lambda model: None)(engine.model)
    verifier, environments = verifier_of("bfloat16", tiny.model_folder()), producer.environment
    works = [tiny.work_of(number) for number in range(first, first + count)]
    return [measured(work, producer.make(work).data, CONFIG, environments, verifier, 4) for work in works]


def refused(rows: list[Row]) -> set[str]:
    return {code for row in rows for codes in row["codes"].values() for code in codes if code}


@pytest.mark.parametrize("name", ZOO)
def test_no_file_of_an_honest_engine_is_refused_whatever_its_label_says(name: str) -> None:
    """So no juror may vote for a slash: what its files show together ends a membership at most."""
    rows = files_of(name, 2)
    assert refused(rows) == set()
    if name in VARY:
        figures = [draws_of(row, AUDIT_EVERYTHING)[0]["mantissas"] for row in rows]
        assert sum(one.total for units in figures for one in units) > 0, "it computes as the verifier does"


@pytest.mark.slow
@pytest.mark.parametrize("name", ZOO)
def test_no_history_of_an_honest_engine_under_its_own_label_is_accused(name: str) -> None:
    """Batches are no label: what is learned of batches of 20 holds for others."""
    learned = name if name in (*VARY, OWN_PASS) else "batches of 20"
    known, rows = files_of(learned, 32, 100), files_of(name, 8)
    assert refused(rows) == set()
    for rate in RATES:
        draws = [draws_of(row, rate) for row in known]
        model = pair_null_model("own", "own", [draws[8:]], draws[:8])
        at, _, _ = histories(paid(rows, model, rate), 100, 1000)
        assert model.made > 0
        assert not at.any(), rate


def test_a_history_drawn_in_bulk_is_that_of_one_node() -> None:
    source = np.random.default_rng(1)
    paid = source.normal(0.2, 0.3, (1, len(FIGURES), BETS))
    evidence = NodeEvidence()
    while not evidence.accused:
        evidence.add({name: tuple(paid[0, place].tolist()) for place, name in enumerate(FIGURES)})
    at, by, largest = histories(paid, 3, 40)
    assert at.tolist() == [evidence.files] * 3
    assert evidence.files < 40
    assert by.sum() == 3
    assert largest == pytest.approx(evidence.peak)
