"""What `up` says while its process runs: one line whenever something changed."""

from collections import Counter

from chain.indexer.records import Status
from chain.indexer.state import State
from protocol.amounts import show_tokens


def earned_line(state: State, pool: int, node: str, now: int, said: str = "") -> str:
    """A node's files and pay so far, before the first file what its worker `said` last; `now` is chain time."""
    account, files = state.accounts.get((pool, node)), state.submissions_of(pool, node)
    if account is None or not files:
        return "no file handed in yet" + (f"; the worker says: {said}" if said else "")
    count, rate = Counter(file.status for file in files), state.pools[pool].terms.rate
    waiting, accepted = count[Status.PENDING], count[Status.ACCEPTED]
    refused = len(files) - waiting - accepted
    claimable = state.claimable_units(pool, node, now) * rate
    return (
        f"files: {accepted} accepted, {refused} refused, {waiting} being checked · earned "
        f"{show_tokens(account.units_awarded * rate)} tokens, paid {show_tokens(account.paid)}, "
        f"claimable {show_tokens(claimable)}"
    )


def seats_line(state: State, owner: str) -> str:
    """What the seats of an owner earned and lost so far, losses not hidden behind earnings."""
    seats = [seat for seat in state.seats.values() if seat.owner == owner]
    earned, lost = sum(seat.earned for seat in seats), sum(seat.penalised for seat in seats)
    active = sum(seat.active for seat in seats)
    return f"{active} seats active · fees {show_tokens(earned)} tokens, penalties {show_tokens(lost)} tokens"
