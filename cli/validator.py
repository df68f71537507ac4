"""`muster validator`: bond seats, judge, take fees, leave."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import (
    Acting,
    Commands,
    DryRunOption,
    JsonOption,
    Paying,
    PoolOption,
    PoolReading,
    YesOption,
    address_option,
)
from cli.output import clock, emit, seconds
from cli.plan import PlannedTransaction, act
from cli.pool_ref import PoolRef
from protocol.encoding import show_tokens
from protocol.errors import ConfigError, MusterError

if TYPE_CHECKING:
    from chain.contracts import SeatView
    from chain.indexer.state import State
    from chain.transactions import Receipt
    from cli.session import Session

app = Commands(help="Bond seats, judge files, earn fees.", no_args_is_help=True)

SeatOption = Annotated[int, typer.Option("--seat", min=0, help="Number of the seat.")]
SeatsOption = Annotated[
    list[int] | None, typer.Option("--seat", min=0, help="Number of a seat; all of yours if none is named.")
]


@dataclass(frozen=True)
class JudgedOptions:
    """Options that name what a seat judges."""

    pool: Annotated[
        list[PoolRef] | None,
        typer.Option(
            "--pool", parser=PoolRef.parse, metavar="NUMBER|URL", help="Pool, by its number or its service's URL."
        ),
    ] = None
    group: Annotated[
        list[str] | None, typer.Option("--group", help="Validator group, by name or number: all its pools.")
    ] = None

    def groups(self, session: "Session") -> list[int]:
        """Return the validator groups that are named. Raises ConfigError if none is, or a pool is judged by a group."""
        from chain.indexer.state import group_number

        named: list[int] = []
        for pool in self.pool or ():
            number = session.pool_number(pool)
            group = session.suite.court.terms_of(number).group
            if group not in (0, number):
                raise ConfigError(f"pool {number} is judged by validator group {group}", f"pass --group {group}")
            named.append(number)
        named += map(group_number, self.group or ())
        if not named:
            raise ConfigError("nothing to judge is named", "pass --pool NUMBER or --group NAME")
        return list(dict.fromkeys(named))


@app.command("up", "muster validator up --pool https://pool.example")
def up(
    pool: PoolOption = None,
    rpc: Annotated[str | None, typer.Option("--rpc", help="RPC URL instead of the one that the service names.")] = None,
    config: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Just run a validator with this file."),
    ] = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Take whatever steps are missing, then judge.

    Profile, keys, gas, tokens, engine and weights, and only then bonds: it shows what a bond risks and asks once. It
    can be stopped and run again at any point; while seats are bonded, keep it running. Ctrl-C waits for votes that
    are due."""
    if config is not None:
        from validator.main import run

        run(config)
        return
    from cli.steps import next_validator_step
    from cli.up import ValidatorUp, check_machine, open_up_profile

    profile = open_up_profile("validator", pool.url if pool else None, rpc)
    validator = ValidatorUp(profile, yes)
    if dry_run:
        step = next_validator_step(validator.facts())
        shown = {"dry_run": True, "next": step.do.value, "why": step.why, "amount": step.amount}
        emit(shown, json, lambda: f"next: {step.do.value}: {step.why}\ndry run: nothing was done")
        return
    check_machine(profile)
    try:
        validator.prepare()
        code = validator.work()
    finally:
        if validator.process is not None:
            validator.process.stop()
    if code:
        raise typer.Exit(code)


@app.command("bond", "muster validator bond --pool 1 --voter ADDRESS --dry-run")
def bond(
    by: Paying,
    judged: JudgedOptions,
    voter: Annotated[
        list[str] | None, address_option("--voter", "Address of the seat's voting key; repeat for several seats.")
    ] = None,
    seat: Annotated[
        int | None, typer.Option(min=0, help="Instead: complete this seat's bond, or give it another voting key.")
    ] = None,
) -> None:
    """Open one seat per voting key; or complete a seat's bond, or change its voting key.

    Your key (--keystore) pays the bond, owns the seats and gets the fees. Seats judge only what they chose. A voting
    key cannot be changed while a vote of it is committed and hidden."""
    from cli.pool_document import refuse_slow_pools

    session = by.open()
    seats, owner = session.suite.seats, session.client.address
    if seat is not None:
        _change_seat(session, seat, voter, by)
        return
    groups = judged.groups(session)
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


def _change_seat(session: "Session", seat: int, voter: list[str] | None, by: Paying) -> None:
    seats, planned = session.suite.seats, []
    call = seats.top_up(seat)
    if call.base_units:
        planned.append(
            PlannedTransaction(f"add {show_tokens(call.base_units)} tokens to the bond of seat {seat}", call)
        )
    current = seats.seat_of(seat).voter
    for key in voter or ():
        if key != current and (len(voter or ()) == 1):
            planned.append(PlannedTransaction(f"seat {seat} votes with key {key}", seats.set_voter(seat, key)))
    if not planned:
        raise ConfigError(f"the bond of seat {seat} is complete", "nothing has to be done")
    act(session, planned, by, seat=seat, added=call.base_units)


@app.command("judge", "muster validator judge --pool 2")
def judge(
    judged: JudgedOptions,
    by: Acting,
    seat: SeatsOption = None,
    stop: Annotated[bool, typer.Option("--stop", help="Stop judging it, from the next epoch on.")] = False,
) -> None:
    """Let seats judge another pool or validator group, five at most, or stop judging one.

    A seat that stops can be drawn until the epoch ends, and from its draws three epochs longer: keep the process
    running until then."""
    from chain.indexer.state import describe
    from cli.pool_document import refuse_slow_pools
    from cli.views import seats_of

    session = by.open()
    seats, state, groups = session.suite.seats, session.state(), judged.groups(session)
    if not stop:
        refuse_slow_pools(session, groups)
    owned = [one for one in seats_of(state, session.client.address) if one.owner == session.client.address]
    planned = []
    for one in owned:
        for chosen in groups:
            if one.active and (chosen in one.groups) == stop and (seat is None or one.seat in seat):
                call = seats.opt_out(one.seat, chosen) if stop else seats.opt_in(one.seat, chosen)
                verb = "stops judging" if stop else "judges"
                planned.append(PlannedTransaction(f"seat {one.seat} {verb} {describe(chosen)}", call))
    if not planned:
        raise ConfigError("no seat of yours is left to change", "muster validator status shows what each one judges")
    act(session, planned, by, seats=[one.seat for one in owned if seat is None or one.seat in seat])


@app.command("claim", "muster validator claim --dry-run")
def claim(
    by: Acting,
    seat: Annotated[int | None, typer.Option(min=0, help="Only this seat; all of yours if missing.")] = None,
) -> None:
    """Settle every vote that is due: fees go to the seat's owner, penalties are taken."""
    from cli.views import seats_of

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
    from cli.views import due, jury_duties

    court, juries = session.suite.court, session.suite.juries
    out = []
    for pool, lane, number, member in due(state, seat, now):
        title = f"close seat {seat}'s part in pool {pool}, lane {lane}, round {number}"
        out.append(PlannedTransaction(title, court.close((pool, lane, number), member)))
    for trial, juror in jury_duties(state, seat):
        out.append(PlannedTransaction(f"close seat {seat}'s part in jury {trial}", juries.close((trial,), juror)))
    return out


@app.command("leave", "muster validator leave --seat 3")
def leave(seat: SeatOption, by: Paying) -> None:
    """Leave with a seat, start its unbonding, or take the bond back: run it again after each waiting time.

    A seat that left can be drawn for four more epochs: keep the process running until then."""
    from chain.contracts import DRAW_REACH

    session = by.open()
    seats = session.suite.seats
    view = seats.seat_of(seat)
    if not view.left_epoch:
        until = seats.current_epoch() + 1 + DRAW_REACH
        title = f"seat {seat} leaves; it can be drawn until epoch {until} ends, so keep its process running until then"
        call, stage = seats.leave_seat(seat), "leaving"
    elif not view.release_at:
        _check_unbondable(session, seat, view)
        period = seconds(session.suite.params.unbonding())
        title = f"start unbonding seat {seat}; run this again in {period} to take the bond"
        call, stage = seats.unbond_seat(seat), "unbonding"
    else:
        _check_withdrawable(session, seat, view)
        title, call, stage = f"withdraw the bond of seat {seat}", seats.withdraw_seat(seat), "withdrawn"
    act(session, [PlannedTransaction(title, call)], by, seat=seat, stage=stage)


def _check_unbondable(session: "Session", seat: int, view: "SeatView") -> None:
    """Raise ConfigError while the seat can still be drawn."""
    from chain.contracts import DRAW_REACH

    epoch, last = session.suite.seats.current_epoch(), view.left_epoch + DRAW_REACH
    if epoch <= last:
        blocks = session.suite.seats.epoch_blocks()
        what = f"seat {seat} can unbond in epoch {last + 1}, it is epoch {epoch}"
        raise ConfigError(what, f"keep its process running and wait: an epoch has {blocks} blocks")


def _check_withdrawable(session: "Session", seat: int, view: "SeatView") -> None:
    """Raise ConfigError while the bond is locked."""
    if view.release_at > session.client.now():
        raise ConfigError(f"the bond of seat {seat} is locked until {clock(view.release_at)}", "run this again then")
    if view.frozen:
        what = f"seat {seat} has {view.frozen} duties whose outcome is open"
        raise ConfigError(what, f"first: muster validator claim --seat {seat}")


@app.command("status", "muster validator status")
def status(
    address: Annotated[str, address_option("--address", "Address that owns or votes for the seats.")],
    look: PoolReading,
) -> None:
    """Answer whether the network sees the seats, what they do, earned, lost, and what to do next.

    It answers what it can when chain, service or process are down, and says which is, since when."""
    from cli.answers import SeatsLook, seats_answers
    from cli.diagnose import Around, look_around, look_at_chain, look_at_process, look_at_service, version_of
    from cli.views import seats_text
    from protocol.api.endpoints import VALIDATOR

    chain = look_at_chain(look, (address,), lambda session: chain_facts(session, session.state(), address))
    known = chain.facts or {}
    owner = known["seats"][0]["owner"] if known.get("seats") else address
    url = (look.pool.url if look.pool else None) or known.get("service")
    service = look_at_service(url, VALIDATOR, owner)
    home = home_of(address)
    process = look_at_process(home, "validator")
    around = look_around(Around(url, seats_of=owner, config_hash=known.get("config", ""), home=home), service.part)
    answers = seats_answers(
        SeatsLook(
            address,
            time.time(),
            (chain.part, service.part, process.part),
            chain.facts,
            service.facts,
            process.facts,
            version_of(url, service.part),
            around.alarms,
            around.finished,
        )
    )
    view = {"address": address, "epoch": known["epoch"], "seats": known["seats"]} if known else {}
    details = [seats_text(address, known["epoch"], known["seats"])] if known else []
    emit(view | answers.document(), look.json, lambda: "\n\n".join([answers.text(), *details]))


def chain_facts(session: "Session", state: "State", address: str) -> dict[str, Any]:
    """What `SeatsLook` wants of the chain."""
    from cli.views import open_rounds, seat_view, seats_of

    now, seats = session.client.now(), seats_of(state, address)
    views = [seat_view(state, seat, now) for seat in seats]
    voters = {seat.voter for seat in seats if seat.active}
    pools = [pool for view in views for pool in view["pools"]]
    served = [state.pools[pool] for pool in pools if state.pools[pool].service_url]
    return {
        "seats": views,
        "now": now,
        "epoch": session.suite.seats.current_epoch(),
        "bond": session.suite.seats.bond(),
        "gas_price": session.client.gas_price(),
        "voters": {voter: session.client.balance(voter) for voter in sorted(voters)},
        "open": [one for seat in seats if not seat.closed for one in open_rounds(state, seat.seat)],
        "service": served[0].service_url if served else "",
        "config": served[0].config_hash.hex() if served else "",
    }


def home_of(address: str) -> Path | None:
    """The home of the validator's process, if the profile is about these seats."""
    from cli.profile import find_profile
    from runtime.keystore import address_of

    profile = find_profile("validator")
    if profile is None:
        return None
    try:
        ours = {address_of(key.keystore) for key in (profile.key, *profile.voters)}
    except MusterError:
        return None
    return profile.home if address in ours else None
