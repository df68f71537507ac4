"""`muster validator`: bond seats, judge, take fees, leave."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from cli.options import (
    Acting,
    Commands,
    OwnConfigOption,
    Paying,
    PoolReading,
    PoolRef,
    UpOptions,
    address_option,
)
from cli.output import clock, emit, seconds
from cli.plan import PlannedTransaction, act
from protocol.encoding import show_tokens
from protocol.errors import ConfigError

if TYPE_CHECKING:
    from chain.contracts import ContractCall
    from chain.transactions import Receipt
    from cli.session import Session

app = Commands(help="Bond seats, judge files, earn fees.", no_args_is_help=True)

SeatOption = Annotated[int, Option("--seat", min=0, help="Number of the seat.")]


@app.command("up", "muster validator up --pool https://pool.example")
def up(
    by: UpOptions,
    config: OwnConfigOption = None,
) -> None:
    """Take whatever steps are missing, then judge.

    Profile, keys, gas, tokens, engine and weights, and only then bonds: it shows what a bond risks and asks once. It
    can be stopped and run again at any point; while seats are bonded, keep it running. Ctrl-C waits for votes that
    are due."""
    if config is not None:
        from validator.main import run

        run(config)
        return
    from cli.run.up import ValidatorUp, open_up_profile

    ValidatorUp(open_up_profile("validator", by.url, by.rpc), by.yes).run(by.dry_run, by.json)


@app.command("judge", "muster validator judge --pool 2 --dry-run")
def judge(
    by: Paying,
    pool: Annotated[
        list[PoolRef] | None,
        Option("--pool", parser=PoolRef.parse, metavar="NUMBER|URL", help="Pool, by its number or its service's URL."),
    ] = None,
    group: Annotated[list[str] | None, Option("--group", help="Validator group, by name or number.")] = None,
    voter: Annotated[list[str] | None, address_option("--voter", "Voting key of a seat; can be repeated.")] = None,
    seat: Annotated[list[int] | None, Option("--seat", min=0, help="Only this seat; can be repeated.")] = None,
    new_voter: Annotated[str | None, address_option("--new-voter", "Give the one --seat this voting key.")] = None,
    stop: Annotated[bool, Option("--stop", help="Stop judging, from the next epoch on; bond nothing.")] = False,
) -> None:
    """Let your seats judge a pool or validator group, five at most; bond what they lack, and a seat per voting key.

    Your key (--keystore) pays the bond, owns the seats and gets the fees. A seat that stops can still be drawn until
    the epoch ends, for duties of up to three more epochs: keep the process running until then."""
    from chain.indexer.state import describe
    from cli.pool.document import refuse_slow_pools

    session = by.open()
    seats, owner = session.suite.seats, session.client.address
    if new_voter is not None and (seat is None or len(seat) != 1 or stop):
        raise ConfigError("a voting key is given to one seat", "pass --new-voter with one --seat")
    groups = judged_groups(session, pool or [], group or [], required=seat is None)
    if not stop:
        refuse_slow_pools(session, groups)
    owned = [mine for mine in session.state().seats.values() if mine.owner == owner and mine.active]
    calls: dict[str, ContractCall[Any]] = {}
    for mine in owned:
        if seat is not None and mine.seat not in seat:
            continue
        top_up = seats.top_up(mine.seat)
        if top_up.base_units and not stop:
            calls[f"add {show_tokens(top_up.base_units)} tokens to the bond of seat {mine.seat}"] = top_up
        if new_voter not in (None, mine.voter):
            calls[f"seat {mine.seat} votes with key {new_voter}"] = seats.set_voter(mine.seat, str(new_voter))
        for chosen in groups:
            if (chosen in mine.groups) == stop:
                call = seats.opt_out(mine.seat, chosen) if stop else seats.opt_in(mine.seat, chosen)
                calls[f"seat {mine.seat} {'stops judging' if stop else 'judges'} {describe(chosen)}"] = call
    if not stop and seat is None:
        for key in voter or ([] if owned else [owner]):
            if key not in {mine.voter for mine in owned}:
                bond = seats.open_seat(key, groups)
                calls[f"bond {show_tokens(bond.base_units)} tokens for a seat with voting key {key}"] = bond
    planned = [PlannedTransaction(title, call) for title, call in calls.items()]
    if not planned:
        raise ConfigError("none of your seats is left to change", "muster validator status shows what each one judges")

    def outcome(receipts: list["Receipt"]) -> tuple[dict[str, Any], str]:
        opened = [
            seats.event(receipt, "SeatOpened").args
            for receipt, step in zip(receipts, planned, strict=True)
            if step.call.label == "Seats.openSeat"
        ]
        lines = [f"seat {args['seat']} can be drawn from epoch {args['activeFrom']} on" for args in opened]
        return {"seats": opened}, "\n".join([*lines, f"now epoch {seats.current_epoch()}"])

    free = not any(step.call.base_units for step in planned)
    act(session, planned, replace(by, yes=by.yes or free), outcome, owner=owner, groups=groups)


def judged_groups(session: "Session", pools: list[PoolRef], names: list[str], required: bool) -> list[int]:
    """Return the validator groups that are named. Raises ConfigError if one is `required` and none is named."""
    from chain.indexer.state import group_number

    named: list[int] = []
    for pool in pools:
        number = session.pool_number(pool.number, pool.url)
        group = session.suite.court.terms_of(number).group
        if group not in (0, number):
            raise ConfigError(f"pool {number} is judged by validator group {group}", f"pass --group {group}")
        named.append(number)
    named += map(group_number, names)
    if required and not named:
        raise ConfigError("nothing to judge is named", "pass --pool NUMBER or --group NAME")
    return list(dict.fromkeys(named))


@app.command("claim", "muster validator claim --dry-run")
def claim(
    by: Acting,
    seat: Annotated[int | None, Option(min=0, help="Only this seat; all of your seats if missing.")] = None,
) -> None:
    """Settle every vote that is due, penalties too, and send all fees to the seat's owner."""
    from cli.diagnose.views import due, jury_duties, seats_of

    session = by.open()
    state, now, court, juries = session.state(), session.client.now(), session.suite.court, session.suite.juries
    seats = [seat] if seat is not None else [s.seat for s in seats_of(state, session.client.address)]
    planned, earning = [], {number for number, known in state.seats.items() if known.fees}
    for pool, lane, round_ in due(state, seats, now):
        title = f"close the committee of pool {pool}, lane {lane}, round {round_}"
        planned.append(PlannedTransaction(title, court.close_committee(pool, lane, round_)))
        earning |= {*state.lanes[pool, lane].rounds[round_].seats}
    for number in seats:
        for trial, juror in jury_duties(state, number):
            title = f"close seat {number}'s part in jury {trial}"
            planned.append(PlannedTransaction(title, juries.close(trial, juror)))
    for number in filter(earning.__contains__, seats):
        title = f"withdraw the fees of seat {number}"
        planned.append(PlannedTransaction(title, session.suite.pools.withdraw_fees(number)))
    if not planned:
        raise ConfigError("no fee is due now", "fees are due once a lane's challenge window is over")
    before = session.suite.token.balance_of(session.client.address)
    act(session, planned, by, seats=seats)
    if not by.dry_run and not by.json:
        after = session.suite.token.balance_of(session.client.address)
        typer.echo(f"balance: {show_tokens(before)} → {show_tokens(after)} tokens")


@app.command("leave", "muster validator leave --seat 3")
def leave(seat: SeatOption, by: Paying) -> None:
    """Leave with a seat, start its unbonding, or take the bond back: run it again after each waiting time.

    A seat that left can be drawn for four more epochs: keep the process running until then."""
    from chain.contracts import DRAW_REACH

    session = by.open()
    seats = session.suite.seats
    view, epoch = seats.seat_of(seat), seats.current_epoch()
    if not view["leftEpoch"]:
        until = epoch + 1 + DRAW_REACH
        title = f"seat {seat} leaves; it can be drawn until epoch {until} ends, so keep its process running until then"
        call, stage = seats.leave_seat(seat), "leaving"
    elif not view["releaseAt"]:
        if epoch <= (last := view["leftEpoch"] + DRAW_REACH):
            what = f"seat {seat} can unbond in epoch {last + 1}, it is epoch {epoch}"
            raise ConfigError(what, f"keep its process running and wait: an epoch has {seats.epoch_blocks()} blocks")
        period = seconds(session.suite.params.unbonding())
        title = f"start unbonding seat {seat}; run this again in {period} to take the bond"
        call, stage = seats.unbond_seat(seat), "unbonding"
    elif view["releaseAt"] > session.client.now():
        raise ConfigError(f"the bond of seat {seat} is locked until {clock(view['releaseAt'])}", "run this again then")
    elif view["frozen"]:
        what = f"seat {seat} has {view['frozen']} duties whose outcome is open"
        raise ConfigError(what, f"first: muster validator claim --seat {seat}")
    else:
        title, call, stage = f"withdraw the bond of seat {seat}", seats.withdraw_seat(seat), "withdrawn"
    act(session, [PlannedTransaction(title, call)], by, seat=seat, stage=stage)


@app.command("status", "muster validator status")
def status(
    address: Annotated[str, address_option("--address", "Address that owns or votes for the seats.")],
    look: PoolReading,
) -> None:
    """Answer whether the network sees the seats, what they do, earned, lost, and what to do next.

    It answers what it can when chain, service or process are down, and says which is, since when."""
    from cli.diagnose.status import validator_status

    document, text = validator_status(look, address)
    emit(document, look.json, lambda: text)
