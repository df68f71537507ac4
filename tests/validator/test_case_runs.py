"""Which run of a node's files a case should name."""

import random
from collections.abc import Sequence

import pytest

from protocol.evidence.null_model import LIMIT_NATS, NodeEvidence
from protocol.verdict import Code
from tests.validator.test_case_verdict import case, final, verdicts
from tests.validator.test_node_evidence import LAW, document
from validator.challenges import SPARE_NATS, FileEvidence, ProvenRun, file_evidence, judge_challenge, shortest_run


def life(*files: int | Code) -> list[FileEvidence]:
    """What accepted files with so many misses add, and files that came to something else."""
    codes = [own if isinstance(own, Code) else Code.ACCEPT for own in files]
    made = [final(number, code) for number, code in enumerate(codes)]
    return [file_evidence(file, LAW, lambda one: [document(files[one.sequence])]) for file in made]


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
    judged = judge_challenge(case(*named), files, LAW, verdicts(run.files, 1, run.first))
    assert judged.code is Code.REJECT_SAMPLING
    assert judged.evidence is not None
    assert judged.evidence.peak == pytest.approx(run.nats)


def test_refused_files_within_a_run_are_not_counted() -> None:
    found = life(*[1] * 6, Code.MALFORMED, *[1] * 6)
    run = shortest_run(found, 256)
    assert run is not None
    between = run.first <= 6 <= run.last
    assert between
    assert run.files == run.last - run.first


def test_no_run_where_nothing_is_shown() -> None:
    assert shortest_run(life(*[0] * 40), 256) is None
    assert shortest_run([], 256) is None


def by_definition(found: Sequence[FileEvidence], most: int, spare: float) -> ProvenRun | None:
    """Every run by itself, as a jury adds it up."""
    best: ProvenRun | None = None
    accepted = [one.submission.code == Code.ACCEPT for one in found]
    for first in reversed(range(len(found))):
        case = NodeEvidence(files=first)
        for last in range(first, len(found)):
            case.add(found[last].nats)
            files = sum(accepted[first : last + 1])
            shows = accepted[first] and accepted[last] and case.peak >= LIMIT_NATS + spare
            if shows and files <= most and (best is None or files < best.files):
                numbers = (found[first].submission.sequence, found[last].submission.sequence)
                best = ProvenRun(*numbers, files, case.peak)
    return best


@pytest.mark.parametrize("seed", range(30))
def test_all_runs_side_by_side_come_to_what_each_comes_to_alone(seed: int) -> None:
    drawn = random.Random(seed)
    kinds = [0, 0, 1, 1, 1, Code.LATE, Code.MALFORMED]
    found = life(*drawn.choices(kinds, weights=[drawn.random() for _ in kinds], k=40))
    for most, spare in ((256, SPARE_NATS), (256, -8.0), (5, -8.0), (2, -12.0)):
        assert shortest_run(found, most, spare) == by_definition(found, most, spare)
