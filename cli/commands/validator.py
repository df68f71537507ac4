"""`muster validator`: bond seats, follow them, take fees, leave. `muster validator run` is in `run.py`."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.commands.validator_status import status
from cli.commands.validator_up import up
from cli.options import Acting, Commands, GroupOptions, Paying, address_option
from cli.output import clock, seconds
from cli.plan import PlannedTransaction, act
from protocol.amounts import show_tokens
from protocol.errors import ConfigError

if TYPE_CHECKING:
    from chain.contracts import SeatView
    from chain.indexer.state import State
    from chain.transactions import Receipt
    from cli.session import Session

app = Commands(help="Bond seats, check submissions, earn fees.", no_args_is_help=True)

app.command()(up)
app.command()(status)

SeatOption = Annotated[int, typer.Option("--seat", min=0, help="Number of the seat.")]

SeatsOption = Annotated[
    list[int] | None, typer.Option("--seat", min=0, help="Number of a seat; all of yours if none is named.")
]


@app.command()
def bond(
    by: Paying,
    judge: GroupOptions,
    voter: Annotated[
        list[str] | None, address_option("--voter", "Address of the seat's voting key; repeat for several seats.")
    ] = None,
) -> None:
    """Open one seat per voting key; your key (--keystore) pays the bond, owns the seats and gets the fees. Seats judge
    only what they opted into."""
    from cli.slow_pools import refuse_slow_pools

    session = by.open()
    seats, owner, groups = session.suite.seats, session.client.address, judge.groups(session)
    refuse_slow_pools(session, groups)
    planned = []
    for key in voter or [owner]:
        call = seats.open_seat(key, groups)
        title = f"bond {show_tokens(call.base_units)} tokens for a seat with voting key {key}"
        planned.append(PlannedTransaction(title, call))

    def outcome(receipts: list["Receipt"]) -> tuple[dict[str, Any], str]:
        opened = [seats.event(receipt, "SeatOpened").args for receipt in receipts]
        lines = [f"seat {a['seat']} can be drawn from epoch {a['activeFrom']} on" for a in opened]
        return {"seats": opened}, "\n".join([*lines, f"now epoch {seats.current_epoch()}"])

    act(session, planned, by, outcome, owner=owner, bond=planned[0].call.base_units, groups=groups)


@app.command("opt-in")
def opt_in(judge: GroupOptions, by: Acting, seat: SeatsOption = None) -> None:
    """Let seats judge one more pool or validator group, five at most, from the next epoch on."""
    _choose(judge, by, seat, joining=True)


@app.command("opt-out")
def opt_out(judge: GroupOptions, by: Acting, seat: SeatsOption = None) -> None:
    """Let seats judge it no more. They can be drawn until the epoch ends, and from its draws three epochs longer: keep
    the process running until then."""
    _choose(judge, by, seat, joining=False)


def _choose(judge: GroupOptions, by: Acting, seat: list[int] | None, *, joining: bool) -> None:
    from chain.indexer.state import describe
    from cli.slow_pools import refuse_slow_pools
    from cli.views.seats import seats_of

    session = by.open()
    seats, state, groups = session.suite.seats, session.state(), judge.groups(session)
    if joining:
        refuse_slow_pools(session, groups)
    owned = [one for one in seats_of(state, session.client.address) if one.owner == session.client.address]
    planned = []
    for one in owned:
        for chosen in groups:
            wanted = one.active and (chosen in one.groups) != joining
            if wanted and (seat is None or one.seat in seat):
                call = seats.opt_in(one.seat, chosen) if joining else seats.opt_out(one.seat, chosen)
                verb = "judges" if joining else "stops judging"
                planned.append(PlannedTransaction(f"seat {one.seat} {verb} {describe(chosen)}", call))
    if not planned:
        raise ConfigError("no seat of yours is left to change", "muster validator status shows what each one judges")
    act(session, planned, by, seats=[one.seat for one in owned if seat is None or one.seat in seat])


@app.command()
def claim(
    by: Acting,
    seat: Annotated[int | None, typer.Option(min=0, help="Only this seat; all of yours if missing.")] = None,
) -> None:
    """Settle every membership and jury duty that is due: fees go to the seat's owner, penalties are taken."""
    from cli.views.seats import seats_of

    session = by.open()
    state, now = session.state(), session.client.now()
    seats = [seat] if seat is not None else [s.seat for s in seats_of(state, session.client.address)]
    planned = [each for number in seats for each in _dues(session, state, number, now)]
    if not planned:
        raise ConfigError("no fee is due now", "fees are due once a lane's challenge window is over")
    before = session.suite.token.balance_of(session.client.address)
    act(session, planned, by, seats=seats)
    if not by.dry_run and not by.json:
        after = session.suite.token.balance_of(session.client.address)
        typer.echo(f"balance: {show_tokens(before)} → {show_tokens(after)} tokens")


def _dues(session: "Session", state: "State", seat: int, now: int) -> list[PlannedTransaction]:
    from cli.views.seats import due, jury_duties

    court, juries = session.suite.court, session.suite.juries
    out = []
    for pool, lane, number, member in due(state, seat, now):
        title = f"close seat {seat}'s part in pool {pool}, lane {lane}, round {number}"
        out.append(PlannedTransaction(title, court.close((pool, lane, number), member)))
    for trial, juror in jury_duties(state, seat):
        out.append(PlannedTransaction(f"close seat {seat}'s part in jury {trial}", juries.close((trial,), juror)))
    return out


@app.command("set-voter")
def set_voter(
    seat: SeatOption,
    voter: Annotated[str, address_option("--voter", "Address of the seat's new voting key.")],
    by: Paying,
) -> None:
    """Give a seat another voting key. Not while a vote is committed and still hidden: neither key could reveal it."""
    session = by.open()
    planned = PlannedTransaction(f"seat {seat} votes with key {voter}", session.suite.seats.set_voter(seat, voter))
    act(session, [planned], by, seat=seat, voter=voter)


@app.command("top-up")
def top_up(seat: SeatOption, by: Paying) -> None:
    """Fill a seat's bond up again after penalties; below the least bond a seat has to leave."""
    session = by.open()
    call = session.suite.seats.top_up(seat)
    if not call.base_units:
        raise ConfigError(f"the bond of seat {seat} is complete", "nothing has to be done")
    title = f"add {show_tokens(call.base_units)} tokens to the bond of seat {seat}"
    act(session, [PlannedTransaction(title, call)], by, seat=seat, added=call.base_units)


@app.command()
def leave(seat: SeatOption, by: Paying) -> None:
    """Leave with a seat: it is drawn for the last time in the next epoch. Keep voting until then, then withdraw."""
    session = by.open()
    planned = PlannedTransaction(f"seat {seat} leaves", session.suite.seats.leave_seat(seat))
    act(session, [planned], by, seat=seat)


@app.command()
def withdraw(seat: SeatOption, by: Acting) -> None:
    """After leaving: start the unbonding period, or take the bond once it is over."""
    session = by.open()
    seats = session.suite.seats
    view = seats.seat_of(seat)
    _check_withdrawable(session, seat, view)
    if view.release_at:
        planned = PlannedTransaction(f"withdraw the bond of seat {seat}", seats.withdraw_seat(seat))
    else:
        period = seconds(session.suite.params.unbonding())
        planned = PlannedTransaction(
            f"start unbonding seat {seat}; withdraw again in {period}", seats.unbond_seat(seat)
        )
    act(session, [planned], by, seat=seat, unbonding=not view.release_at)


def _check_withdrawable(session: "Session", seat: int, view: "SeatView") -> None:
    from chain.contracts import DRAW_REACH

    if not view.left_epoch:
        raise ConfigError(f"seat {seat} has not left", f"first: muster validator leave --seat {seat}")
    epoch, now = session.suite.seats.current_epoch(), session.client.now()
    reachable = view.left_epoch + DRAW_REACH
    if not view.release_at and epoch <= reachable:
        blocks = session.suite.seats.epoch_blocks()
        what = f"seat {seat} can unbond in epoch {reachable + 1}, it is epoch {epoch}"
        raise ConfigError(what, f"wait: an epoch has {blocks} blocks")
    if view.release_at > now:
        raise ConfigError(f"the bond of seat {seat} is locked until {clock(view.release_at)}", "withdraw after that")
    if view.frozen:
        raise ConfigError(
            f"seat {seat} has {view.frozen} duties whose outcome is open",
            f"first: muster validator claim --seat {seat}",
        )
