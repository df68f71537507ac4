"""A node's case from its files and their documents: order, what is believed, what is left out."""

from dataclasses import replace

import pytest

from chain.indexer.records import Submission
from protocol.evidence.figures import RowFigures, finding
from protocol.evidence.null_model import BETS, Bet, PairNullModel
from protocol.verdict import Code, Finding, Verdict
from validator.challenges import NullModel, decided, file_evidence, history_evidence

PAIR = ("vllm:bfloat16:cpu", "transformers:bfloat16:cpu")
LAW = NullModel(
    [
        PairNullModel(
            worker=PAIR[0], verifier=PAIR[1], bets={"unexplained": (Bet(tilt=1.0, rate=0.01, most=1.2),) * BETS}
        )
    ],
    2,
)
ENGINE = {"name": "transformers", "version": "5.1", "dtype": "bfloat16", "device": "cpu"}
HEADER = Finding("header", Code.ACCEPT, {"engine": "vllm 0.32.0", "dtype": "bfloat16", "device": "cpu"})


def file(sequence: int, code: Code = Code.ACCEPT, voted: Code = Code.ACCEPT) -> Submission:
    made = Submission(1, sequence, "0x" + "11" * 20, 3, sequence, 40, 4, b"", b"", 1, 1, "")
    return replace(made, code=int(code), votes_code=int(voted))


def document(misses: int, device: str = "cpu") -> Verdict:
    """Four rows of two problems, so many misses in each."""
    rows = [RowFigures(row, 10, 1, 0.1, 0.1, 0.1 * misses, float(misses)) for row in range(4)]
    engine, findings = ENGINE | {"device": device}, (HEADER, finding(rows))
    return Verdict(1, "", 1, 7, "", 3, 0, "", "", "", Code.ACCEPT, engine, [0, 1, 2, 3], findings)


def test_files_that_miss_too_often_together_accuse_and_honest_ones_do_not() -> None:
    files = [file(number) for number in range(20)]
    cheat, found = history_evidence(files, LAW, lambda _: [document(1)])
    honest, _ = history_evidence(files, LAW, lambda _: [document(0)])
    assert cheat.accused
    assert not honest.accused
    assert [one.submission.sequence for one in found] == list(range(20))


def test_one_honest_document_protects_from_lying_ones() -> None:
    case, found = history_evidence([file(n) for n in range(20)], LAW, lambda _: [document(5), document(0), document(5)])
    assert not case.accused
    assert {one.documents for one in found} == {3}


def test_what_follows_an_undecided_file_waits() -> None:
    files = [file(3, Code.VOID, Code.VOID), file(1), file(2), file(4, Code.NONE, Code.NONE), file(5)]
    assert [one.sequence for one in decided(files)] == [1, 2]


def test_a_late_file_adds_nothing() -> None:
    late = file_evidence(file(1, Code.LATE, Code.NONE), LAW, lambda _: [document(5)])
    assert (late.nats, late.notes) == ({}, ())


@pytest.mark.parametrize(
    "code", [Code.REJECT_WEIGHTS, Code.REJECT_TERMINATION, Code.MALFORMED, Code.UNAVAILABLE, Code.CANARY]
)
def test_figures_of_files_that_were_not_accepted_are_nobodys_evidence(code: Code) -> None:
    """What a refused file costs, its node has paid; a node case cannot name one."""
    asked: list[int] = []

    def wild(one: Submission) -> list[Verdict]:
        asked.append(one.sequence)
        return [document(9)]

    refused = file_evidence(file(1, code), LAW, wild)
    assert (refused.documents, refused.seen, asked) == (0, (), []), "nobody measures it, or reads a document"
    assert refused.notes == ("figures of files that were not accepted",)
    assert refused.nats == {}
    overturned = file_evidence(file(1, code, voted=Code.ACCEPT), LAW, wild)
    assert overturned.documents == 0, "what a dispute overturned counts as it stands now"
    assert file_evidence(file(1, Code.UNSURE, voted=code), LAW, wild).documents == 1, "and so does what one restored"
    files = [file(number, code if number % 2 else Code.ACCEPT) for number in range(40)]
    case, _ = history_evidence(files, LAW, lambda one: [document(9 if one.sequence % 2 else 0)])
    assert not case.accused


def test_documents_of_other_engines_or_without_figures_are_named_and_count_nothing() -> None:
    bare = replace(document(0), findings=(HEADER,))
    found = file_evidence(file(1), LAW, lambda _: [document(5, "cuda"), bare])
    assert found.documents == 0
    assert found.notes[0].startswith(
        "no null model for files of vllm:bfloat16:cpu verified by transformers:bfloat16:cuda"
    )
    assert found.notes[1] == "it holds no figures of rows"
    assert found.nats == {}
