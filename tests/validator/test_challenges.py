"""Node challenges: a node's evidence, whole runs only, the run to name, and every lie of a juror recomputed by a
stranger."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from chain.contracts import Committee
from chain.indexer.records import ChallengeOutcome, NodeChallenge, Submission, Trial
from chain.indexer.state import State
from protocol.encoding import keccak
from protocol.evidence.figures import BETS, Sum, finding
from protocol.evidence.null_model import LIMIT_NATS, Bet, EvidenceConfig, NodeEvidence, PairNullModel
from protocol.seeds import audit_sample, jury_seed
from protocol.verdict import BallotDocument, Code, Finding, Verdict
from validator.challenges import (
    SPARE_NATS,
    ChallengeRecord,
    FileEvidence,
    ProvenRun,
    challenged_run,
    contradicts,
    decided,
    faults_of,
    file_evidence,
    history_evidence,
    judge_challenge,
    juror_replay,
    majority,
    shortest_run,
)
from validator.judging.queue import LaneVerdict
from validator.voting import ChallengeVote

PAIR = ("vllm:bfloat16:cpu", "transformers:bfloat16:cpu")
BET = {"unexplained": (Bet(tilt=1.0, rate=0.01, most=1.2),) * BETS}
LAW = PairNullModel(worker=PAIR[0], verifier=PAIR[1], bets=BET)
POLICY = EvidenceConfig(engines=(PAIR[0],))
NODE, STRANGER = "0x" + "11" * 20, "0x" + "22" * 20
ENGINE = {"name": "transformers", "version": "5.1", "dtype": "bfloat16", "device": "cpu"}
HEADER = Finding("header", Code.ACCEPT, {"engine": "vllm 0.32.0", "dtype": "bfloat16", "device": "cpu"})


def file(sequence: int, code: Code = Code.ACCEPT, voted: Code = Code.ACCEPT) -> Submission:
    made = Submission(1, sequence, NODE, 3, sequence, 40, 4, b"", b"", 1, 1, "")
    return replace(made, code=int(code), votes_code=int(voted))


def document(misses: int, device: str = "cpu", known: bool = True) -> Verdict:
    """Four rows of two problems, so many misses in each. `known`: the step has a null model for the engines."""
    figures = {"unexplained": [Sum(2.0 * misses, 20.0)] * 2}
    engine, model = ENGINE | {"device": device}, LAW if known else None
    own = finding(figures, model.honest() if model else {}, model.nats(figures) if model else {})
    return Verdict(1, "", 1, 7, "", 3, 0, "", "", "", Code.ACCEPT, engine, [0, 1, 2, 3], (HEADER, own))


def test_files_that_miss_too_often_together_accuse_and_honest_ones_do_not() -> None:
    files = [file(number) for number in range(20)]
    cheat, found = history_evidence(files, lambda _: [document(1)])
    honest, _ = history_evidence(files, lambda _: [document(0)])
    assert cheat.accused
    assert not honest.accused
    assert [one.submission.sequence for one in found] == list(range(20))


def test_one_honest_document_protects_from_lying_ones() -> None:
    said = [document(5), document(0), document(5)]
    evidence, found = history_evidence([file(number) for number in range(20)], lambda _: said)
    assert not evidence.accused
    assert {one.documents for one in found} == {3}


def test_what_follows_an_undecided_file_waits() -> None:
    files = [file(3, Code.VOID, Code.VOID), file(1), file(2), file(4, Code.NONE, Code.NONE), file(5)]
    assert [one.sequence for one in decided(files)] == [1, 2]


@pytest.mark.parametrize(
    "code", [Code.REJECT_WEIGHTS, Code.REJECT_TERMINATION, Code.MALFORMED, Code.UNAVAILABLE, Code.CANARY]
)
def test_figures_of_files_that_were_not_accepted_are_nobodys_evidence(code: Code) -> None:
    """What a refused file costs, its node has paid; a node challenge cannot name one."""
    asked: list[int] = []

    def wild(one: Submission) -> list[Verdict]:
        asked.append(one.sequence)
        return [document(9)]

    refused = file_evidence(file(1, code), wild)
    assert (refused.documents, refused.seen, asked) == (0, (), []), "nobody measures it, or reads a document"
    assert refused.notes == ("figures of files that were not accepted",)
    assert refused.nats == {}
    overturned = file_evidence(file(1, code, voted=Code.ACCEPT), wild)
    assert overturned.documents == 0, "what a dispute overturned counts as it stands now"
    assert file_evidence(file(1, Code.UNSURE, voted=code), wild).documents == 1, "and so does what one restored"
    files = [file(number, code if number % 2 else Code.ACCEPT) for number in range(40)]
    evidence, _ = history_evidence(files, lambda one: [document(9 if one.sequence % 2 else 0)])
    assert not evidence.accused


def test_documents_of_a_step_without_a_null_model_or_without_figures_are_named_and_count_nothing() -> None:
    bare = replace(document(0), findings=(HEADER,))
    found = file_evidence(file(1), lambda _: [document(5, "cuda", known=False), bare])
    assert found.documents == 0
    assert found.notes == (
        "policy step 3 has no null model for files of vllm:bfloat16:cpu verified by transformers:bfloat16:cuda",
        "it holds no figures",
    )
    assert found.nats == {}


OPENED = 1000


def final(sequence: int, code: Code = Code.ACCEPT) -> Submission:
    return replace(file(sequence, code, code), final_time=OPENED)


def challenge(*sequences: int) -> NodeChallenge:
    accuser = "0x" + "33" * 20
    return NodeChallenge(1, 1, NODE, accuser, sequences, b"", bond=10, trials=[1], block=1, time=OPENED)


def run_evidence(
    files: list[Submission], named: Sequence[int], found: dict[int, Verdict]
) -> tuple[NodeEvidence, tuple[FileEvidence, ...]]:
    """What the run between two of a node's files adds up to."""
    run = challenged_run(files, named)
    assert run is not None
    assert run[0] == named[0], "so many are before it"
    return history_evidence(run[1], lambda one: [found[one.sequence]], run[0])


def verdicts(count: int, misses: int, start: int = 0) -> dict[int, Verdict]:
    return {sequence: replace(document(misses), sequence=sequence) for sequence in range(start, start + count)}


def vote(named: range, files: list[Submission], misses: int = 1, config: EvidenceConfig | None = POLICY) -> Code:
    return judge_challenge(challenge(*named), files, config, verdicts(len(named), misses, named.start)).code


def test_a_run_of_cheated_files_is_rejected_and_an_honest_one_accepted() -> None:
    files = [final(number) for number in range(16)]
    assert vote(range(16), files, misses=1) is Code.DIFFERENT
    assert vote(range(16), files, misses=0) is Code.ACCEPT
    assert vote(range(1), files, misses=1) is Code.ACCEPT  # one of them could be honest


REFUSED = (Code.REJECT_WEIGHTS, Code.VOID, Code.MALFORMED, Code.UNAVAILABLE, Code.CANARY)


@pytest.mark.parametrize("refused", [{}, dict(zip((2, 3, 5, 6, 8), REFUSED, strict=True))], ids=["none", "five"])
def test_a_run_of_all_files_says_what_verify_says_refused_ones_among_them(refused: dict[int, Code]) -> None:
    files = [final(number, refused.get(number, Code.ACCEPT)) for number in range(12)]
    found = verdicts(12, 1) | {number: replace(document(9), sequence=number) for number in refused}
    whole, each = history_evidence(files, lambda one: [found[one.sequence]])
    assert run_evidence(files, [0, 11], found) == (whole, each)
    assert {one.submission.sequence for one in each if one.documents} == set(range(12)) - refused.keys()


def test_the_later_a_run_begins_the_more_it_has_to_show() -> None:
    files = [final(number) for number in range(400)]
    starts = (0, 10, 100, 300)
    totals = [run_evidence(files, range(at, at + 8), verdicts(8, 1, at))[0].peak for at in starts]
    assert totals == sorted(totals, reverse=True)
    # No start is worth more than the whole life's evidence: whoever chooses it gains nothing.
    assert run_evidence(files, range(308), verdicts(308, 1))[0].peak > totals[-1]


def test_a_challenge_names_all_accepted_files_of_its_run_and_no_other() -> None:
    files = [final(number) for number in range(16)]
    judged = judge_challenge(challenge(*range(0, 16, 2), 15), files, POLICY, verdicts(16, 1))
    assert judged.code is Code.ACCEPT
    assert "leaves out" in judged.why
    files[3], files[5] = final(3, Code.VOID), final(5, Code.MALFORMED)
    del files[12:]
    named = tuple(number for number in range(12) if number not in (3, 5))
    judged = judge_challenge(challenge(*named), files, POLICY, verdicts(12, 1))
    assert judged.code is Code.DIFFERENT
    assert [one.submission.sequence for one in judged.found] == [n for n in range(12) if n != 3]


def test_what_is_not_final_yet_and_what_cannot_be_had_blames_nobody() -> None:
    files = [final(number) for number in range(12)]
    for change in ({"disputed": True}, {"final_time": OPENED + 1}, {"code": 0, "votes_code": 0}):
        held = [replace(one, **change) if one.sequence == 4 else one for one in files]
        named = tuple(number for number in range(12) if number != 4)
        assert judge_challenge(challenge(*named), held, POLICY, verdicts(12, 1)).code is Code.UNAVAILABLE
    found = verdicts(12, 1)
    found[7] = replace(found[7], code=Code.UNAVAILABLE)
    judged = judge_challenge(challenge(*range(12)), files, POLICY, found)
    assert (judged.code, judged.why) == (Code.UNAVAILABLE, "files 7 could not be judged")


def test_a_juror_that_does_not_know_the_null_model_neither_acquits_nor_convicts() -> None:
    """Its own verdicts on all files may lie on disk from before a restart, and the pool's service be gone."""
    found = tuple(verdicts(12, 1).values())
    trial = Trial(trial=1, pool=1, sequence=11, size=5, seed_block=1)
    vote = ChallengeVote(trial, Committee((), (), b""), [], challenge(*range(12)), State(), None)
    assert vote.codes(LaneVerdict((Code.ACCEPT,) * 12, b"h" * 32, found)) == Code.UNAVAILABLE
    assert vote.whole, "its files are looked for before any is measured"


def test_a_pool_without_evidence_convicts_nobody() -> None:
    assert vote(range(16), [final(number) for number in range(16)], config=None) is Code.ACCEPT
    assert LIMIT_NATS > 14
    record = tried(evidence=None)
    assert "adds up to accept (the pool's configuration has no `evidence`)" in fault(record, ballot(record))


def test_files_of_steps_without_a_null_model_convict_nobody() -> None:
    files = [final(number) for number in range(16)]
    found = {number: replace(document(9, known=False), sequence=number) for number in range(16)}
    judged = judge_challenge(challenge(*range(16)), files, POLICY, found)
    assert judged.code is Code.ACCEPT
    assert {note for one in judged.found for note in one.notes} == {
        "policy step 3 has no null model for files of vllm:bfloat16:cpu verified by transformers:bfloat16:cpu"
    }


def test_only_a_file_that_is_refused_by_itself_is_a_reason_to_slash() -> None:
    """Honest engines that compute otherwise than was calibrated are accused; their files pass every check."""
    files, named, found = [final(number) for number in range(16)], challenge(*range(16)), verdicts(16, 1)
    judged = judge_challenge(named, files, POLICY, found)
    assert judged.code is Code.DIFFERENT
    assert "above all in unexplained" in judged.why
    assert not Code.DIFFERENT.is_reject
    refused = verdicts(16, 0) | {5: replace(found[5], code=Code.REJECT_WEIGHTS)}
    judged = judge_challenge(named, files, POLICY, refused)
    assert (judged.code, judged.why) == (Code.REJECT_WEIGHTS, "files 5 are refused: reject: weights")


def life(*files: int | Code) -> list[FileEvidence]:
    """What accepted files with so many misses add, and files that came to something else."""
    codes = [own if isinstance(own, Code) else Code.ACCEPT for own in files]
    made = [final(number, code) for number, code in enumerate(codes)]
    return [file_evidence(file, lambda one: [document(files[one.sequence])]) for file in made]


def test_the_shortest_run_that_shows_a_node_and_no_shorter_one() -> None:
    found = life(*[0] * 5, *[1] * 30, *[0] * 5)
    run = shortest_run(found, 256)
    assert run is not None
    assert run.first >= 5, "honest files prove nothing"
    assert run.last < 35
    assert run.files == run.last - run.first + 1
    assert run.nats >= LIMIT_NATS + SPARE_NATS
    assert shortest_run(found, run.files) == run
    assert shortest_run(found, run.files - 1) is None, "a challenge that may name fewer shows nothing"
    named = range(run.first, run.last + 1)
    files = [one.submission for one in found]
    judged = judge_challenge(challenge(*named), files, POLICY, verdicts(run.files, 1, run.first))
    assert judged.code is Code.DIFFERENT
    assert judged.evidence is not None
    assert judged.evidence.peak == pytest.approx(run.nats)


def test_refused_files_within_a_run_are_not_counted_and_honest_ones_are_no_run() -> None:
    run = shortest_run(life(*[1] * 6, Code.MALFORMED, *[1] * 6), 256)
    assert run is not None
    assert run.first <= 6 <= run.last
    assert run.files == run.last - run.first
    assert shortest_run(life(*[0] * 40), 256) is None
    assert shortest_run([], 256) is None


def by_definition(found: Sequence[FileEvidence], most: int, spare: float) -> ProvenRun | None:
    """Every run by itself, as a jury adds it up."""
    best: ProvenRun | None = None
    accepted = [one.submission.code == Code.ACCEPT for one in found]
    for first in reversed(range(len(found))):
        evidence = NodeEvidence(files=first)
        for last in range(first, len(found)):
            evidence.add(found[last].nats)
            files = sum(accepted[first : last + 1])
            shows = accepted[first] and accepted[last] and evidence.peak >= LIMIT_NATS + spare
            if shows and files <= most and (best is None or files < best.files):
                numbers = (found[first].submission.sequence, found[last].submission.sequence)
                best = ProvenRun(*numbers, files, evidence.peak)
    return best


@pytest.mark.parametrize("seed", range(30))
def test_all_runs_side_by_side_come_to_what_each_comes_to_alone(seed: int) -> None:
    drawn = random.Random(seed)
    kinds = [0, 0, 1, 1, 1, Code.CANARY, Code.MALFORMED]
    found = life(*drawn.choices(kinds, weights=[drawn.random() for _ in kinds], k=40))
    for most, spare in ((256, SPARE_NATS), (256, -8.0), (5, -8.0), (2, -12.0)):
        assert shortest_run(found, most, spare) == by_definition(found, most, spare)


HASH, CONFIG, RATE, BLOCK = b"\x05" * 32, b"\x0c" * 32, 1 << 15, 100
FILES, ROWS = 12, 64


def files() -> list[Submission]:
    return [replace(final(number), rows=ROWS, sha256=keccak(b"%d" % number)) for number in range(FILES)]


def on(file: Submission, misses: int, seed: bytes) -> Verdict:
    """What an honest juror says of a file: by the rows that the seed draws. The last one of a cheat is refused."""
    return replace(
        document(misses),
        code=Code.REJECT_SAMPLING if misses and file.sequence == FILES - 1 else Code.ACCEPT,
        sequence=file.sequence, node=NODE, sha256=file.sha256.hex(), lane_seed=seed.hex(), config_hash=CONFIG.hex(),
        audited=audit_sample(seed, file.sequence, ROWS, RATE),
    )  # fmt: skip


def ballot(record: ChallengeRecord, misses: int = 1) -> BallotDocument:
    verdicts = tuple(on(file, misses, record.trial.seed) for file in record.files)
    return BallotDocument(f"trial-{record.trial.trial}", record.trial.seed.hex(), verdicts)


def tried(
    votes: Code = Code.REJECT_SAMPLING, outcome: ChallengeOutcome = ChallengeOutcome.UPHELD, **changes: Any
) -> ChallengeRecord:
    """A challenge over twelve files that its jury of five upheld, each with the same honest document."""
    accusation = replace(challenge(*range(FILES)), block=BLOCK, outcome=outcome, code=int(votes), trials=[4])
    trial = Trial(trial=4, pool=1, sequence=FILES - 1, size=5, seed_block=BLOCK + 2)
    trial.seed, trial.seats = jury_seed(HASH, 4), (10, 11, 12, 13, 14)
    made = files()
    named = {file.sequence: file for file in made}
    record = ChallengeRecord(accusation, made, named, trial, POLICY, RATE, CONFIG)
    trial.reveals = {juror: (int(votes), ballot(record).digest) for juror in range(5)}
    return replace(record, **changes)


def fault(record: ChallengeRecord, made: BallotDocument, vote: Code = Code.REJECT_SAMPLING) -> str:
    """What is found wrong with a juror that voted so, bound to that document."""
    record.trial.reveals[2] = (int(vote), made.digest)
    found = juror_replay(record, 2, made.canonical())
    assert (found.seat, found.code) == (12, vote)
    return found.fault


def test_an_honest_challenge_follows_from_its_documents_to_its_outcome() -> None:
    record = tried()
    assert list(faults_of(record)) == []
    found = juror_replay(record, 2, ballot(record).canonical())
    assert (found.fault, found.note) == ("", "")
    assert found.judged is not None
    assert found.judged.why == f"files {FILES - 1} are refused: reject: sampling"
    ours = judge_challenge(
        record.challenge, record.files, POLICY, {one.sequence: one for one in ballot(record).verdicts}
    )
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
    ours = judge_challenge(record.challenge, record.files, POLICY, few)
    assert "was upheld, and by our own verdict should be refuted: e^0.0: nothing shown" in contradicts(record, ours)
    refuted = tried(Code.ACCEPT, ChallengeOutcome.REFUTED)
    all_files = {one.sequence: one for one in ballot(record).verdicts}
    guilty = judge_challenge(record.challenge, record.files, POLICY, all_files)
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
    [{"node": STRANGER}, {"sha256": "00" * 32}, {"lane_seed": "00" * 32}, {"config_hash": ""}, {"pool": 2}],
)
def test_a_verdict_on_another_file_draw_or_pool_is_no_evidence(change: dict[str, Any]) -> None:
    record = tried()
    first, *rest = ballot(record).verdicts
    made = replace(ballot(record), verdicts=(replace(first, **change), *rest))
    assert fault(record, made) == "its verdict on file 0 concerns another file, draw or pool"


def test_who_leaves_out_rows_that_were_drawn_is_found() -> None:
    record = tried()
    first, *rest = ballot(record).verdicts
    lazy = replace(first, audited=first.audited[1:])
    found = fault(record, replace(ballot(record), verdicts=(lazy, *rest)))
    assert found.startswith(f"it did not measure row {first.audited[0]} of file 0")


def test_a_jury_that_was_drawn_by_a_known_block_is_found() -> None:
    record = tried()
    (found,) = faults_of(replace(record, trial=replace(record.trial, seed_block=BLOCK)))
    assert found == "jury 4 was drawn by block 100, known when the challenge was opened"


@pytest.mark.parametrize(
    ("accepting", "found"),
    [
        (range(0), "the votes come to none: lapsed; the chain says reject: sampling: upheld"),
        (range(3), "the votes come to accept: refuted; the chain says reject: sampling: upheld"),
    ],
)
def test_an_outcome_that_does_not_follow_from_the_votes_is_found(accepting: range, found: str) -> None:
    """Two of the five jurors' votes stay."""
    record = tried()
    rest = {juror: vote for juror, vote in record.trial.reveals.items() if juror > 2}
    record.trial.reveals = dict.fromkeys(accepting, (int(Code.ACCEPT), b"")) | rest
    assert list(faults_of(record)) == [found]


def test_a_majority_of_different_ends_the_membership() -> None:
    assert list(faults_of(tried(Code.DIFFERENT, ChallengeOutcome.DIFFERENT))) == []
    (slashed,) = faults_of(tried(Code.DIFFERENT, ChallengeOutcome.UPHELD))
    assert slashed == "the votes come to different: different; the chain says different: upheld"


def test_an_open_challenge_has_no_outcome_to_follow() -> None:
    record = tried(outcome=ChallengeOutcome.OPEN)
    record.trial.reveals.clear()
    assert list(faults_of(record)) == []
    assert majority(record.trial) is Code.NONE
    undrawn = replace(record, trial=Trial(trial=4, pool=1, sequence=11, size=5, seed_block=BLOCK + 2))
    assert list(faults_of(undrawn)) == []
    assert undrawn.rows(0) == []
