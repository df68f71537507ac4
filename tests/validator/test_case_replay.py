"""A node case recomputed by a stranger: every lie of a juror, of the bucket and of a chain that is not what it says."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from chain.indexer.records import Account, CaseOutcome, Submission, Trial
from protocol.encoding import keccak
from protocol.seeds import audit_sample, jury_seed
from protocol.verdict import BallotDocument, Code, Verdict
from tests.validator.test_case_verdict import case, final
from tests.validator.test_node_evidence import LAW, document
from validator.challenges import ChallengeRecord, contradicts, faults_of, judge_challenge, juror_replay, majority

HASH, CONFIG, RATE, BLOCK = b"\x05" * 32, b"\x0c" * 32, 1 << 15, 100
FILES, ROWS = 12, 64
NODE = "0x" + "11" * 20


def files() -> list[Submission]:
    return [replace(final(number), rows=ROWS, sha256=keccak(b"%d" % number)) for number in range(FILES)]


def on(file: Submission, misses: int, seed: bytes) -> Verdict:
    """What an honest juror says of a file: by the rows that the seed draws."""
    measured, rows = document(misses), audit_sample(seed, file.sequence, ROWS, RATE)
    (figures,) = [one for one in measured.findings if one.check == "evidence"]
    columns: dict[str, Any] = {
        name: [value[0]] * len(rows) if isinstance(value, list) and value else value
        for name, value in figures.measurements.items()
    } | {"row": rows}
    return replace(
        measured,
        sequence=file.sequence, node=NODE, sha256=file.sha256.hex(), lane_seed=seed.hex(), config_hash=CONFIG.hex(),
        audited=rows, findings=(measured.findings[0], replace(figures, measurements=columns)),
    )  # fmt: skip


def ballot(record: ChallengeRecord, misses: int = 1) -> BallotDocument:
    verdicts = tuple(on(file, misses, record.trial.seed) for file in record.files)
    return BallotDocument(f"trial-{record.trial.trial}", record.trial.seed.hex(), verdicts)


def tried(
    votes: Code = Code.REJECT_SAMPLING, outcome: CaseOutcome = CaseOutcome.UPHELD, **changes: Any
) -> ChallengeRecord:
    """A case over twelve files that its jury of five upheld, each with the same honest document."""
    accusation = replace(case(*range(FILES)), block=BLOCK, outcome=outcome, code=int(votes), trials=[4])
    trial = Trial(trial=4, pool=1, sequence=FILES - 1, size=5, seed_block=BLOCK + 2)
    trial.seed, trial.seats = jury_seed(HASH, 4), (10, 11, 12, 13, 14)
    made = files()
    account = Account(1, NODE, "0x" + "44" * 20, ejected=outcome is CaseOutcome.UPHELD)
    record = ChallengeRecord(
        case=accusation, files=made, named={file.sequence: file for file in made}, trials=[trial], account=account,
        model=LAW, audit_rate=RATE, config_hash=CONFIG,
    )  # fmt: skip
    trial.reveals = {juror: (int(votes), ballot(record).digest) for juror in range(5)}
    return replace(record, **changes)


def fault(record: ChallengeRecord, made: BallotDocument, vote: Code = Code.REJECT_SAMPLING) -> str:
    """What is found wrong with a juror that voted so, bound to that document."""
    record.trial.reveals[2] = (int(vote), made.digest)
    found = juror_replay(record, 2, made.canonical())
    assert (found.seat, found.code) == (12, vote)
    return found.fault


def test_an_honest_case_follows_from_its_documents_to_its_outcome() -> None:
    record = tried()
    assert faults_of(record, HASH) == []
    found = juror_replay(record, 2, ballot(record).canonical())
    assert (found.fault, found.note) == ("", "")
    assert found.judged is not None
    assert found.judged.evidence is not None
    assert found.judged.evidence.accused
    ours = judge_challenge(record.case, record.files, LAW, {one.sequence: one for one in ballot(record).verdicts})
    assert contradicts(record, ours) == ""
    # Each file is measured by about half of its rows, drawn for it alone.
    assert {len(record.rows(number)) for number in range(FILES)} != {ROWS}
    assert record.rows(0) != record.rows(1)


def test_a_vote_against_its_own_document_is_found() -> None:
    record = tried()
    honest = ballot(record, misses=0)
    assert fault(record, ballot(record), Code.ACCEPT).startswith("it voted accept, but its verdict document adds up to")
    assert "adds up to accept (e^0.0: nothing shown)" in fault(record, honest, Code.REJECT_SAMPLING)
    # No one loses by `unavailable`, and who did not have the law in time owes it.
    record.trial.reveals[2] = (int(Code.UNAVAILABLE), honest.digest)
    unavailable = juror_replay(record, 2, honest.canonical())
    assert unavailable.fault == ""
    assert "it voted unavailable" in unavailable.note


def test_evidence_below_the_bound_convicts_nobody() -> None:
    record = tried()
    few = {one.sequence: one for one in ballot(record, misses=0).verdicts}
    ours = judge_challenge(record.case, record.files, LAW, few)
    assert "was upheld, and by our own verdict should be refuted: e^0.0: nothing shown" in contradicts(record, ours)
    refuted = tried(Code.ACCEPT, CaseOutcome.REFUTED)
    guilty = judge_challenge(record.case, record.files, LAW, {one.sequence: one for one in ballot(record).verdicts})
    assert "was refuted, and by our own verdict should be upheld" in contradicts(refuted, guilty)
    assert contradicts(refuted, ours) == ""


def test_a_document_that_was_swapped_or_is_of_something_else_is_no_evidence() -> None:
    record = tried()
    swapped = juror_replay(record, 2, ballot(record, misses=0).canonical())
    assert swapped.fault == "the verdict document is not the one that was voted with"
    assert swapped.judged is None
    made = ballot(record)
    assert "is not of jury 4" in fault(record, replace(made, where="trial-3"))
    assert "is not of jury 4" in fault(record, replace(made, seed=bytes(32).hex()))
    assert "says nothing on file 11" in fault(record, replace(made, verdicts=made.verdicts[:-1]))


@pytest.mark.parametrize(
    "change",
    [{"node": "0x" + "22" * 20}, {"sha256": "00" * 32}, {"lane_seed": "00" * 32}, {"config_hash": ""}, {"pool": 2}],
)
def test_a_verdict_on_another_file_draw_or_pool_is_no_evidence(change: dict[str, Any]) -> None:
    record = tried()
    first, *rest = ballot(record).verdicts
    made = replace(ballot(record), verdicts=(replace(first, **change), *rest))
    assert fault(record, made) == "its verdict on file 0 is of another file, draw or pool"


def test_who_leaves_out_rows_that_were_drawn_is_found() -> None:
    record = tried()
    first, *rest = ballot(record).verdicts
    lazy = replace(first, audited=first.audited[1:])
    assert fault(record, replace(ballot(record), verdicts=(lazy, *rest))).startswith(
        f"it did not measure row {first.audited[0]} of file 0"
    )


def _other_node(record: ChallengeRecord) -> ChallengeRecord:
    return replace(record, named={**record.named, 3: replace(record.files[3], node="0x" + "22" * 20)})


def _unknown(record: ChallengeRecord) -> ChallengeRecord:
    return replace(record, named={**record.named, 3: None})


def _refused(record: ChallengeRecord) -> ChallengeRecord:
    return replace(record, named={**record.named, 3: replace(record.files[3], code=int(Code.MALFORMED))})


def _twice(record: ChallengeRecord) -> ChallengeRecord:
    return replace(record, case=replace(record.case, sequences=(0, 0, 1)))


def _known_draw(record: ChallengeRecord) -> ChallengeRecord:
    record.trial.seed_block = BLOCK
    return record


def _chosen_seed(record: ChallengeRecord) -> ChallengeRecord:
    record.trial.seed = bytes(24) + b"\x07" * 8
    return record


def _no_majority(record: ChallengeRecord) -> ChallengeRecord:
    for juror in range(3):
        del record.trial.reveals[juror]
    return record


def _false_votes(record: ChallengeRecord) -> ChallengeRecord:
    for juror in range(3):
        record.trial.reveals[juror] = (int(Code.ACCEPT), b"")
    return record


def _not_ejected(record: ChallengeRecord) -> ChallengeRecord:
    return replace(record, account=Account(1, NODE, ""))


def _replaced(record: ChallengeRecord) -> ChallengeRecord:
    return replace(record, trials=[replace(record.trial, trial=3), record.trial])


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (_other_node, "file 3 is not the accused node's, but 0x2222"),
        (_unknown, "file 3 is not on chain"),
        (_refused, "file 3 was not accepted"),
        (_twice, "it names 3 files, not 1 to 256 in ascending order"),
        (_known_draw, "jury 4 was drawn by block 100, known when the case was opened"),
        (_chosen_seed, "the seed of jury 4 does not follow from block 102"),
        (_no_majority, "the votes come to none: lapsed; the chain says reject: sampling: upheld"),
        (_false_votes, "the votes come to accept: refuted; the chain says reject: sampling: upheld"),
        (_not_ejected, "the node was not ejected"),
        (_replaced, "jury 3 was replaced, though its votes come to reject: sampling"),
    ],
)
def test_what_the_contracts_would_not_have_allowed_is_found(
    change: Callable[[ChallengeRecord], ChallengeRecord], found: str
) -> None:
    (fault,) = faults_of(change(tried()), HASH)
    assert found in fault


def test_an_open_case_has_no_outcome_to_follow() -> None:
    record = tried(outcome=CaseOutcome.OPEN)
    record.trial.reveals.clear()
    assert faults_of(record, HASH) == []
    assert majority(record.trial) is Code.NONE
    undrawn = replace(record, trials=[Trial(trial=4, pool=1, sequence=11, size=5, seed_block=BLOCK + 2)])
    assert faults_of(undrawn, None) == []
    assert undrawn.rows(0) == []


def test_a_pool_without_a_null_model_convicts_nobody_whatever_its_jury_said() -> None:
    record = tried(model=None)
    assert "adds up to accept (the pool names no null model)" in fault(record, ballot(record))
