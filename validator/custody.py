"""Which files our seats have to be able to show, until when, and which of them to somebody now. Pure."""

from collections.abc import Container, Iterator

from chain.judging import Round
from chain.records import Submission
from chain.state import State
from validator.kept_files import FilePlace


def tried_by(state: State, seats: Container[int]) -> set[FilePlace]:
    """The files that these seats judge, or judged, as jurors."""
    trials = state.trials.values()
    return {(trial.pool, trial.sequence) for trial in trials if any(seat in seats for seat in trial.seats)}


def needed(
    state: State, place: FilePlace, sha256: bytes, seats: Container[int], tried: Container[FilePlace], now: int
) -> bool:
    """Whether bytes kept for the file at `place` may still have to be shown by one of our `seats`, as of chain time
    `now`: they voted, or may yet vote, that they had it (`tried`: as jurors), and its outcome can still change."""
    file = state.submissions.get(place)
    if file is None or file.sha256 != sha256 or file.is_final(now):
        return False
    rounds = state.lane_of(file).rounds
    to_be_drawn = not rounds[-1].drawn and not rounds[-1].settled
    return to_be_drawn or place in tried or any(_answers_for(one, file, seats) for one in rounds)


def to_show(state: State, seats: Container[int]) -> Iterator[tuple[Submission, int]]:
    """Files that are before a jury and that one of our `seats` showed by its vote to have had, with that seat.

    Whoever keeps them announces them, whether or not the pool's own storage has them: it may have them for the seats'
    addresses alone. Not before the votes are open, for it would say what a hidden one is not; and nobody is fined
    between accept and unavailable."""
    for place, dispute in state.disputes.items():
        if not dispute.resolved:
            file = state.submissions[place]
            members = ((one, seat) for one in state.lane_of(file).rounds for seat in one.seats if seat in seats)
            had = [seat for one, seat in members if one.had(seat, file.place)]
            yield from ((file, seat) for seat in had[:1])


def _answers_for(judging: Round, file: Submission, seats: Container[int]) -> bool:
    ours = (seat for seat in judging.seats if seat in seats)
    return any(not judging.settled or judging.had(seat, file.place) for seat in ours)
