"""Which run of a node's files a case should name."""

import pytest

from protocol.evidence.process import LIMIT_NATS
from protocol.verdict import Code
from tests.validator.test_case_verdict import case, final, verdicts
from tests.validator.test_node_evidence import LAW, document
from validator.case_runs import SPARE_NATS, shortest_run
from validator.case_verdict import judge_case
from validator.node_evidence import FileEvidence, evidence_of


def life(*misses: int | None) -> list[FileEvidence]:
    """What files with so many misses add; None: a file that was refused."""
    files = [final(number, Code.MALFORMED if own is None else Code.ACCEPT) for number, own in enumerate(misses)]
    return [evidence_of(file, LAW, lambda one: [document(misses[one.sequence] or 0)]) for file in files]


def test_the_shortest_run_that_shows_a_node_and_no_shorter_one() -> None:
    found = life(*[0] * 5, *[1] * 30, *[0] * 5)
    run = shortest_run(found, 256)
    assert run is not None
    assert run.first >= 5, "honest files prove nothing"
    assert run.last < 35
    assert run.files == run.last - run.first + 1
    assert run.nats >= LIMIT_NATS + SPARE_NATS
    assert shortest_run(found, run.files) == run
    assert shortest_run(found, run.files - 1) is None, "a case that may name fewer shows nothing"
    named = range(run.first, run.last + 1)
    files = [one.submission for one in found]
    judged = judge_case(case(*named), files, LAW, verdicts(run.files, 1, run.first))
    assert judged.code is Code.REJECT_SAMPLING
    assert judged.case is not None
    assert judged.case.peak == pytest.approx(run.nats)


def test_a_run_begins_and_ends_with_files_that_a_case_can_name() -> None:
    run = shortest_run(life(None, *[1] * 6, None, *[1] * 30), 256)
    assert run is not None
    whole = shortest_run(life(*[1] * 40), 256)
    assert whole is not None
    refused = (0, 7)
    assert run.first not in refused
    assert run.last not in refused
    between = sum(run.first <= place <= run.last for place in refused)
    assert run.files == run.last - run.first + 1 - between


def test_no_run_where_nothing_is_shown() -> None:
    assert shortest_run(life(*[0] * 40), 256) is None
    assert shortest_run([], 256) is None
