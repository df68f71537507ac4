"""Which rounds and trials need us, and what of them: pure functions of the projected state."""

from collections.abc import Container
from math import comb

from chain.indexer.records import Accusation, Lane, Pool, Round, Status, Submission, Trial
from chain.indexer.state import State
from protocol.encoding import keccak
from protocol.identity import PoolId, WorkId
from protocol.rollout_file.rows import Commitment
from protocol.seeds import Work
from protocol.verdict import Code, code_at
from validator.context import SubmissionFacts


def lane_place(lane: Lane, number: int) -> str:
    return f"lane-{lane.pool}-{lane.lane}-{number}"


def trial_place(trial: Trial) -> str:
    return f"trial-{trial.trial}"


def deciding_round(state: State, file: Submission) -> Round:
    """The round that gave a file its outcome."""
    rounds = state.lane_of(file).rounds
    undecided = (Code.NONE, Code.UNDECIDED)
    return next((r for r in rounds if r.settled and code_at(r.codes, file.place) not in undecided), rounds[-1])


def named_files(state: State, case: Accusation) -> list[Submission]:
    """The files that a node case names, in order."""
    return [state.submissions[case.pool, sequence] for sequence in case.sequences]


def acceptance_at_stake(state: State, file: Submission) -> bool:
    """Whether a jury that finds the file unavailable ends an acceptance. It does so in disputes only: a canary's jury
    leaves what it cannot tell as it was."""
    place = (file.pool, file.sequence)
    if place in state.canaries and not state.canaries[place].concluded:
        return False
    verdict = state.disputes[place].verdict if place in state.disputes else 0
    return any(Code(code).is_accept for code in (file.votes_code, verdict))


def files_digest(files: list[Submission]) -> bytes:
    """What a ballot is about: a reorganisation that changes a file changes this."""
    return keccak(b"".join(file.inner + bytes.fromhex(file.node[2:]) for file in files))


def submission_facts(
    pools: PoolId, pool: Pool, file: Submission, step_seed: bytes, lane_seed: bytes
) -> SubmissionFacts:
    """A submission to `pool` as a judge needs it."""
    work = Work(WorkId(pools, file.node, file.step, file.counter), step_seed, pool.steps[file.step].manifest)
    committed = Commitment(file.sha256, file.root, file.units, file.rows)
    return SubmissionFacts(work, committed, file.sequence, lane_seed, pool.terms.auditRate)


def to_finalize(state: State, pool: int, now: int) -> list[Submission]:
    """Files not accepted whose challenge window is over: their slash, fine or refund waits for a keeper."""
    waiting = (Status.REJECTED, Status.MALFORMED, Status.UNAVAILABLE, Status.LATE)
    return [
        file
        for file in state.submissions_of(pool)
        if file.status in waiting and not file.finalized and not file.disputed and file.final_time <= now
    ]


def judged_files(lane: Lane, files: list[Submission]) -> list[Submission]:
    """The files that the lane's newest round votes on: those attested, and then those that the first left undecided."""
    if lane.round.round == 0:
        return [file for file in files if lane.is_judged(file.place)]
    return [file for file in files if code_at(lane.rounds[0].codes, file.place) is Code.UNDECIDED]


def will_never_be_drawn(state: State, lane: Lane) -> bool:
    """Whether the newest round's committee can be drawn no more: nothing was attested in time, or nobody drew it."""
    current, terms = lane.round, state.pools[lane.pool].terms
    if current.drawn:
        return False
    if not current.seed_block:
        return state.head >= lane.last_block + terms.attestBlocks
    return state.head > current.seed_block + terms.drawBlocks


def seats_of(state: State, voters: Container[str]) -> set[int]:
    """Numbers of the seats that vote with these keys."""
    return {seat.seat for seat in state.seats.values() if seat.voter in voters}


def chance(state: State, voters: Container[str], pool: Pool) -> float:
    """Probability that a committee of the pool yet to be drawn has at least one seat that votes with these keys."""
    ours = [seat.voter in voters for seat in state.seats.values() if seat.active and pool.seat_class in seat.classes]
    committee = pool.terms.committee
    if len(ours) < committee:
        return 0.0
    return 1.0 - comb(ours.count(False), committee) / comb(len(ours), committee)
