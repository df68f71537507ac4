"""Which files our seats have to be able to show, until when, and which of them to somebody now. Pure."""

from collections.abc import Container, Iterator

from chain.indexer.records import Submission
from chain.indexer.state import State
from validator.kept_files import FilePlace


def needed(state: State, place: FilePlace, sha256: bytes, now: int) -> bool:
    """Whether bytes kept for the file at `place` may still have to be shown, as of chain time `now`: until its outcome
    can change no more, whoever's vote it rests on. A seat's voting key may be another process's for a while, or lie in
    the next one's configuration already; the bytes have to outlast that."""
    file = state.submissions.get(place)
    return file is not None and file.sha256 == sha256 and not file.is_final(now)


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
