"""What a juror says of a node case: whole runs only, no start for free, and nothing where nothing can be said."""

from dataclasses import replace

from chain.indexer.records import Accusation, Submission, Trial
from chain.indexer.state import State
from protocol.evidence.null_model import BETS, LIMIT_NATS, NAMES, NodeEvidence
from protocol.verdict import Code, Verdict
from tests.validator.test_node_evidence import LAW, document, file
from validator.challenges import NullModel, _reason, challenged_run, history_evidence, judge_challenge, run_evidence
from validator.judging.queue import LaneVerdict
from validator.voting import ChallengeVote

OPENED = 1000


def final(sequence: int, code: Code = Code.ACCEPT) -> Submission:
    return replace(file(sequence, code, Code.NONE if code is Code.LATE else code), final_time=OPENED)


def case(*sequences: int) -> Accusation:
    return Accusation(
        1, 1, "0x" + "11" * 20, "0x" + "33" * 20, sequences, b"", bond=10, trials=[1], block=1, time=OPENED
    )


def verdicts(count: int, misses: int, start: int = 0) -> dict[int, Verdict]:
    return {sequence: replace(document(misses), sequence=sequence) for sequence in range(start, start + count)}


def vote(named: range, files: list[Submission], misses: int = 1, model: NullModel | None = LAW) -> Code:
    return judge_challenge(case(*named), files, model, verdicts(len(named), misses, named.start)).code


def test_a_run_of_cheated_files_is_rejected_and_an_honest_one_accepted() -> None:
    files = [final(number) for number in range(16)]
    assert vote(range(16), files, misses=1) is Code.REJECT_SAMPLING
    assert vote(range(16), files, misses=0) is Code.ACCEPT
    assert vote(range(1), files, misses=1) is Code.ACCEPT  # one of them could be honest


def test_a_run_of_all_files_says_what_verify_says() -> None:
    files = [final(number) for number in range(12)]
    whole, _ = history_evidence(files, LAW, lambda _: [document(1)])
    run = challenged_run(files, range(12))
    assert run is not None
    assert run_evidence(run, LAW, verdicts(12, 1))[0] == whole


def test_refused_and_late_files_count_alike_in_a_run_and_in_what_verify_says() -> None:
    refused = {
        2: Code.REJECT_WEIGHTS,
        3: Code.VOID,
        5: Code.MALFORMED,
        6: Code.UNAVAILABLE,
        7: Code.LATE,
        8: Code.CANARY,
    }
    files = [final(number, refused.get(number, Code.ACCEPT)) for number in range(12)]
    found = verdicts(12, 1) | {number: replace(document(9), sequence=number) for number in refused}
    whole, each = history_evidence(files, LAW, lambda one: [found[one.sequence]])
    run = challenged_run(files, [0, 11])
    assert run is not None
    assert run_evidence(run, LAW, found) == (whole, tuple(each))
    assert [one.submission.sequence for one in each if one.documents] == [0, 1, 4, 9, 10, 11]


def test_the_later_a_run_begins_the_more_it_has_to_show() -> None:
    files = [final(number) for number in range(400)]
    totals = []
    for start in (0, 10, 100, 300):
        run = challenged_run(files, range(start, start + 8))
        assert run is not None
        assert run.before == start
        totals.append(run_evidence(run, LAW, verdicts(8, 1, start))[0].peak)
    assert totals == sorted(totals, reverse=True)
    # No start is worth more than the whole life's case: whoever chooses it gains nothing.
    run = challenged_run(files, range(0, 308))
    assert run is not None
    assert run_evidence(run, LAW, verdicts(308, 1))[0].peak > totals[-1]


def test_a_case_that_leaves_files_out_proves_nothing() -> None:
    files = [final(number) for number in range(16)]
    chosen = case(*range(0, 16, 2), 15)
    judged = judge_challenge(chosen, files, LAW, verdicts(16, 1))
    assert judged.code is Code.ACCEPT
    assert "leaves out" in judged.why


def test_files_that_were_not_accepted_are_no_part_of_a_run() -> None:
    files = [final(number) for number in range(12)]
    files[3], files[5] = final(3, Code.VOID), final(5, Code.MALFORMED)
    named = tuple(number for number in range(12) if number not in (3, 5))
    judged = judge_challenge(case(*named), files, LAW, verdicts(12, 1))
    assert judged.code is Code.REJECT_SAMPLING
    assert [one.submission.sequence for one in judged.found] == [n for n in range(12) if n != 3]


def test_refused_files_add_nothing_to_the_evidence_of_a_run() -> None:
    """What was refused costs its node at once; a case is about what passed. An honest run stays one, however wild the
    figures of a refused file in its midst are."""
    files = [final(number) for number in range(12)]
    found = verdicts(12, 0)
    plain = challenged_run(files, range(12))
    assert plain is not None
    for code in (Code.REJECT_WEIGHTS, Code.MALFORMED, Code.UNAVAILABLE):
        changed = [replace(one, code=int(code)) if one.sequence in range(2, 10) else one for one in files]
        run = challenged_run(changed, range(12))
        assert run is not None
        wild = found | {number: replace(document(9), sequence=number) for number in range(2, 10)}
        summed, each = run_evidence(run, LAW, wild)
        assert [one.documents for one in each] == [1, 1, *[0] * 8, 1, 1]
        assert [one.nats for one in each[2:10]] == [{}] * 8
        assert not summed.accused
    assert run_evidence(plain, LAW, verdicts(12, 9))[0].accused


def test_what_is_not_final_yet_and_what_cannot_be_had_blames_nobody() -> None:
    files = [final(number) for number in range(12)]
    for change in ({"disputed": True}, {"final_time": OPENED + 1}, {"code": 0, "votes_code": 0}):
        held = [replace(one, **change) if one.sequence == 4 else one for one in files]
        named = tuple(number for number in range(12) if number != 4)
        assert judge_challenge(case(*named), held, LAW, verdicts(12, 1)).code is Code.UNAVAILABLE
    found = verdicts(12, 1)
    found[7] = replace(found[7], code=Code.UNAVAILABLE)
    judged = judge_challenge(case(*range(12)), files, LAW, found)
    assert (judged.code, judged.why) == (Code.UNAVAILABLE, "files 7 could not be judged")


def test_a_juror_that_does_not_know_the_null_model_neither_acquits_nor_convicts() -> None:
    """Its own verdicts on all files may lie on disk from before a restart, and the pool's service be gone."""
    found = tuple(verdicts(12, 1).values())
    judged = LaneVerdict((Code.ACCEPT,) * 12, b"h" * 32, found)
    trial = Trial(trial=1, pool=1, sequence=11, size=5, seed_block=1)
    vote = ChallengeVote(trial, case(*range(12)), State(), None)
    assert vote.codes(judged) == Code.UNAVAILABLE
    assert vote.whole, "its files are looked for before any is measured"


def test_a_pool_without_a_null_model_convicts_nobody() -> None:
    assert vote(range(16), [final(number) for number in range(16)], model=None) is Code.ACCEPT
    assert LIMIT_NATS > 14


def test_the_reason_names_what_most_of_the_evidence_is() -> None:
    """Misses of any kind are of sampling, so that a node is not told that its weights were wrong."""
    found = {}
    for name in NAMES:
        summed = NodeEvidence()
        summed.add({name: (20.0,) * BETS})
        found[name] = _reason(summed)
    weights = {name for name, code in found.items() if code is Code.REJECT_WEIGHTS}
    assert weights == {"mantissas", "logprobs", "coherence"}
    assert {found[name] for name in set(found) - weights} == {Code.REJECT_SAMPLING}
