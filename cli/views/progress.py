"""What a submission waits for, in words."""

from chain.indexer.records import Lane, Status, Submission
from chain.indexer.state import State
from cli.output import clock
from protocol.verdict import Code, code_at


def waiting(state: State, sub: Submission, now: int) -> str:
    """`waiting for … since …`, or empty when nothing can happen to the file any more."""
    if sub.disputed:
        return f"waiting for a jury's verdict since {clock(_disputed_at(state, sub))}"
    if sub.status == Status.PENDING:
        lane = state.lanes.get((sub.pool, sub.lane))
        return _lane(lane, sub) if lane else f"waiting for its lane since {clock(sub.time)}"
    if sub.is_final(now):
        return ""
    if now < sub.final_time:
        return f"waiting for the challenge window to end at {clock(sub.final_time)}, since {clock(sub.decided_time)}"
    return f"waiting for somebody to finalize it since {clock(sub.final_time)}"


def _lane(lane: Lane, sub: Submission) -> str:
    newest = lane.round
    again = " (second committee)" if newest.round else ""
    if newest.round == 0 and not lane.is_judged(sub.place):
        return f"waiting for the pool's service to attest its upload since {clock(sub.time)}"
    if not newest.drawn:
        return f"waiting for block {newest.seed_block} and the committee's draw{again} since {clock(sub.time)}"
    if not newest.all_committed:
        got, of = len(newest.commits), len(newest.seats)
        return f"waiting for votes{again}, {got} of {of} in, until {clock(newest.commit_until)}"
    if not newest.all_revealed:
        got, of = len(newest.reveals), len(newest.seats)
        return f"waiting for votes to be opened{again}, {got} of {of} are, until {clock(newest.reveal_until)}"
    return f"waiting for somebody to settle the lane{again} since {clock(newest.drawn_time)}"


def _disputed_at(state: State, sub: Submission) -> int:
    dispute = state.disputes.get((sub.pool, sub.sequence))
    canary = state.canaries.get((sub.pool, sub.sequence))
    return dispute.time if dispute else canary.time if canary else sub.decided_time


def reason(state: State, sub: Submission) -> str:
    """Why a file was not accepted, with the committee's count; empty for accepted and pending files."""
    if sub.status in (Status.PENDING, Status.ACCEPTED):
        return ""
    said = Code(sub.code).label
    votes = votes_on(state, sub)
    if not votes:
        return said
    agreeing = sum(1 for code in votes.values() if code == sub.code)
    return f"{said} ({agreeing} of {len(votes)} opened votes: {', '.join(Code(c).label for c in votes.values())})"


def votes_on(state: State, sub: Submission) -> dict[int, int]:
    """Seat → code of every opened vote of the newest committee that looked at the file."""
    lane = state.lanes.get((sub.pool, sub.lane))
    if lane is None:
        return {}
    for newest in reversed(lane.rounds):
        votes = {newest.seats[m]: code_at(codes, sub.place) for m, (codes, _) in sorted(newest.reveals.items())}
        if votes:
            return {seat: code for seat, code in votes.items() if code}
    return {}
