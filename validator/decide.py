"""What a seat does next, in rounds of lanes and in trials: pure functions of the chain's state and of its ballot."""

from collections.abc import Container, Iterable
from enum import Enum

from chain.indexer.records import Lane, Panel, Pool, Round, Submission, Trial
from chain.indexer.state import State
from protocol.encoding import keccak
from protocol.identity import PoolId, WorkId
from protocol.rollout_file.rows import Commitment
from protocol.seeds import Work
from protocol.verdict import Code, code_at
from validator.judging.checks import SubmissionFacts


class SeatAction(Enum):
    """The next step of one seat."""

    WAIT = "wait"
    JUDGE = "judge"
    COMMIT = "commit"
    REVEAL = "reveal"
    LOST = "lost"
    DONE = "done"


def settleable(panel: Panel, now: int) -> bool:
    """Whether anyone may tally: all have revealed, or after the commits all who committed, or reveals are over."""
    if not panel.drawn or panel.settled:
        return False
    if panel.all_revealed:
        return True
    return now >= (panel.commit_until if panel.commits.keys() == panel.reveals.keys() else panel.reveal_until)


def member_action(panel: Panel, member: int, ballot_ready: bool, ballot_matches: bool, now: int) -> SeatAction:
    """Return the next action of a member of a known committee at chain time `now`. After a reorganisation, without the
    commitment or with another seed, the same rules lead to judging or committing again.

    `ballot_ready`: a judged ballot for this very seed is stored. `ballot_matches`: a stored ballot hashes to the
    commitment on chain.
    """
    if panel.settled:
        return SeatAction.DONE
    if member in panel.reveals:
        return SeatAction.WAIT
    if member in panel.commits:
        if now >= panel.reveal_until:
            return SeatAction.DONE
        if not ballot_matches:
            return SeatAction.LOST
        reveals_open = panel.drawn and (panel.all_committed or now >= panel.commit_until)
        return SeatAction.REVEAL if reveals_open else SeatAction.WAIT
    if panel.drawn and now >= panel.commit_until:
        return SeatAction.DONE
    return SeatAction.COMMIT if ballot_ready else SeatAction.JUDGE


def last_to_commit(panel: Panel, member: int) -> bool:
    """Whether all others of a drawn body have committed and the member has not: nobody could copy its open vote."""
    return panel.drawn and panel.commits.keys() | {member} == set(range(len(panel.seats))) and not panel.all_committed


def settler(panel: Panel, number: int) -> int:
    """Return the member whose reveal settles lane `number`, once all have committed: one whose vote is still hidden."""
    hidden = sorted(member for member, commitment in panel.commits.items() if commitment)
    return hidden[turn(number, len(hidden))]


def turn(number: int, members: int) -> int:
    """Return the member whose turn it is to settle lane (or conclude trial) `number`: everybody's equally often."""
    return number % members


def round_name(lane: Lane, number: int) -> str:
    return f"lane-{lane.pool}-{lane.lane}-{number}"


def trial_name(trial: Trial) -> str:
    return f"trial-{trial.trial}"


def ballots_needed(state: State, name: str, now: int) -> bool:
    """Whether a vote in the round or trial of this name may still have to be revealed as of chain time `now`. One that
    the chain does not show may come back with a reorganisation."""
    kind, *numbers = name.split("-")
    if kind == "lane":
        lane = state.lanes.get((int(numbers[0]), int(numbers[1])))
        if lane is None or not lane.round.settled:
            return True
        window = state.pools[lane.pool].terms.challengeWindow
        final = all(file.is_final(now) for file in state.files_of(lane))
        return now < lane.round.settled_time + window or not final
    trial = state.trials.get(int(numbers[0]))
    if trial is None or not trial.settled:
        return True
    return trial.drawn and now < trial.reveal_until + state.pools[trial.pool].terms.challengeWindow


def pools_of_ballots(state: State, names: Iterable[str]) -> set[int]:
    """Return the pools of the rounds and trials of these names, as far as the chain knows them: a key that its seat no
    longer names has its votes to reveal."""
    pools = set[int]()
    for kind, number, *_ in (name.split("-") for name in names):
        trial = state.trials.get(int(number)) if kind == "trial" else None
        pools.add(trial.pool if trial else int(number) if kind == "lane" else 0)
    return pools & state.pools.keys()


def deciding_round(state: State, file: Submission) -> Round:
    rounds = state.lane_of(file).rounds
    undecided = (Code.NONE, Code.UNDECIDED)
    return next((r for r in rounds if r.settled and code_at(r.codes, file.place) not in undecided), rounds[-1])


def committee_seed(state: State, file: Submission) -> bytes:
    """Return what drew the rows that a file's committees audit, the same in both rounds; empty if none was drawn."""
    return next((r.seed for r in state.lane_of(file).rounds if r.drawn), b"")


def files_digest(files: list[Submission]) -> bytes:
    """Return what a ballot is about: a reorganisation that changes a file changes this."""
    return keccak(b"".join(file.inner + bytes.fromhex(file.node[2:]) for file in files))


def submission_facts(
    pools: PoolId, pool: Pool, file: Submission, step_seed: bytes, lane_seed: bytes
) -> SubmissionFacts:
    """Return a submission to `pool` as a judge needs it."""
    work = Work(WorkId(pools, file.node, file.step, file.counter), step_seed, pool.steps[file.step].manifest)
    committed = Commitment(file.sha256, file.root, file.units, file.rows)
    return SubmissionFacts(work, committed, file.sequence, lane_seed, pool.terms.auditRate)


def to_finalize(state: State, pool: int, now: int) -> list[Submission]:
    """Return refused files whose challenge window is over, one of a lane: their slash, fine or refund waits for
    somebody."""
    refused = sorted(state.pools[pool].refused, reverse=True) if pool in state.pools else []
    files = [state.submissions[pool, sequence] for sequence in refused]
    due = {file.lane: file for file in files if not file.disputed and file.final_time <= now}
    return sorted(due.values(), key=lambda file: file.sequence)


def judged_files(lane: Lane, files: list[Submission]) -> list[Submission]:
    """Return the files that the newest round votes on: all, or those that the first round left undecided."""
    if lane.round.round == 0:
        return files
    return [file for file in files if code_at(lane.rounds[0].codes, file.place) is Code.UNDECIDED]


def will_never_be_drawn(state: State, lane: Lane) -> bool:
    """Whether the newest round's committee can be drawn no more, because nobody drew it in time."""
    current, terms = lane.round, state.pools[lane.pool].terms
    return not current.drawn and state.head > current.seed_block + terms.drawBlocks


def seats_of(state: State, voters: Container[str]) -> set[int]:
    return {seat.seat for seat in state.seats.values() if seat.voter in voters}
