"""Which function applies which event, and small steps that several of them share."""

from collections.abc import Callable

from chain.events import Event
from chain.judging import Dispute, Round
from chain.records import Account, Payment, Slash, Submission
from chain.state import State

Reducer = Callable[[State, Event], None]
REDUCERS: dict[tuple[str, str], Reducer] = {}
ZERO = "0x" + "00" * 20


def on(contract: str, *names: str) -> Callable[[Reducer], Reducer]:
    """Register the reducer of events of a contract."""

    def register(reducer: Reducer) -> Reducer:
        for name in names:
            REDUCERS[contract, name] = reducer
        return reducer

    return register


def account_of(state: State, event: Event) -> Account:
    return state.accounts[event.args["pool"], event.args["node"]]


def submission_of(state: State, event: Event) -> Submission:
    return state.submissions[event.args["pool"], event.args["sequence"]]


def dispute_of(state: State, event: Event) -> Dispute:
    return state.disputes[event.args["pool"], event.args["sequence"]]


def round_of(state: State, event: Event) -> Round:
    number: int = event.args["round"]
    return state.lanes[event.args["pool"], event.args["lane"]].rounds[number]


def earn(account: Account, sub: Submission) -> None:
    account.units_awarded += sub.units
    account.units_earned += sub.units
    sub.cumulative = account.units_earned


def freeze(account: Account, sub: Submission, time: int) -> None:
    """The file keeps its node from submitting and from claiming what vests later, until it is thawed.

    The contract's NodeFrozen and NodeReleased do not name the file, and a slash thaws without them: so we count files.
    """
    if not sub.frozen:
        sub.frozen = True
        account.frozen += 1
        account.frozen_at = account.frozen_at or time


def thaw(account: Account, sub: Submission) -> None:
    if sub.frozen:
        sub.frozen = False
        account.frozen -= 1
        account.frozen_at = account.frozen_at if account.frozen else 0


def slash(
    state: State, event: Event, kind: str, who: object, code: int, amount: int, file: tuple[int, int] | None = None
) -> None:
    """Note a penalty for `file` (pool, sequence); without one, for the file that the event names."""
    pool, sequence = file or (event.args["pool"], event.args["sequence"])
    state.slashes.append(
        Slash(kind, str(who), pool, sequence, code, amount, event.block, event.timestamp, event.tx_hash)
    )


def pay(state: State, event: Event, kind: str, to: str, pool: int, amount: int, node: str = "", units: int = 0) -> None:
    state.payments.append(Payment(kind, to, pool, amount, node, units, event.block, event.timestamp, event.tx_hash))
