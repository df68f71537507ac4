"""`muster governance`: propose to the timelock that owns the parameters, and execute when its delay is over."""

import secrets
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import AmountOption, Commands, Paying, Reading, address_option
from cli.output import clock, emit
from cli.plan import PlannedTransaction, act
from protocol.amounts import parse_tokens, show_tokens
from protocol.errors import ConfigError, first_problem

if TYPE_CHECKING:
    from chain.contracts import ContractCall
    from chain.indexer.records import Proposal
    from chain.transactions import Receipt
    from cli.session import Session

app = Commands(help="Parameters, pause and minting, through the timelock.", no_args_is_help=True)
_END_OF_TIME = (1 << 40) - 1

IdOption = Annotated[str | None, typer.Option("--id", help="The proposal's id, or how it begins.")]


@app.command()
def status(look: Reading) -> None:
    """Who governs, the parameters now and announced, and every proposal with what it does and when it is ready."""
    from cli.views.governance import governance_text, governance_view

    session = look.open()
    suite, state = session.suite, session.state()
    view = governance_view(state, session.deployment, session.client.now()) | {
        "timelock": suite.timelock.address,
        "delay": suite.timelock.delay(),
        "owner": suite.params.read("owner"),
        "minter": suite.token.read("owner") if session.deployment.token.ours else None,
        "unbonding": suite.params.unbonding(),
        "values": suite.params.values(),
    }
    emit(view, look.json, lambda: governance_text(view))


@app.command()
def change(
    by: Paying,
    values: Annotated[
        list[str], typer.Option("--set", metavar="NAME=VALUE", help="As in a network's [suite.penalties], in tokens.")
    ],
) -> None:
    """Propose other penalties; those not named stay. They are announced when executed, and hold `unbonding` later."""
    session = by.open()
    penalties = _changed(session, values)
    _propose(session, session.suite.params.call("set", penalties), f"change {', '.join(values)}", by)


@app.command()
def pause(by: Paying) -> None:
    """Refuse new nodes, seats, pools and members for a week at most: at once as guardian, else by proposal."""
    session = by.open()
    if session.suite.timelock.is_guardian(session.client.address):
        act(session, [PlannedTransaction("pause new entries now", session.suite.timelock.call("pause"))], by)
    else:
        _propose(session, session.suite.params.call("setPaused", True), "pause new entries", by)


@app.command()
def resume(by: Paying) -> None:
    """Propose to allow new entries again before the pause ends by itself."""
    session = by.open()
    _propose(session, session.suite.params.call("setPaused", False), "allow new entries", by)


@app.command()
def mint(
    to: Annotated[str, address_option("--to", "Who gets the test tokens.")], amount: AmountOption, by: Paying
) -> None:
    """Mint test tokens: at once with the key that owns the token, by proposal where the timelock owns it."""
    session = by.open()
    token = session.suite.token
    if not session.deployment.token.ours:
        raise ConfigError("nobody here can mint this deployment's token", "get its tokens where they are traded")
    title, call = f"mint {show_tokens(amount)} tokens for {to}", token.mint(to, amount)
    if token.read("owner") == session.suite.timelock.address:
        _propose(session, call, title, by)
    else:
        act(session, [PlannedTransaction(title, call)], by, to=to, base_units=amount)


@app.command()
def execute(by: Paying, which: IdOption = None) -> None:
    """Make the calls of a proposal whose time has come; name it if several are scheduled."""
    session = by.open()
    proposal = _scheduled(session, which)
    if proposal.ready_at > session.client.now():
        raise ConfigError(f"the proposal cannot be executed before {clock(proposal.ready_at)}", "try again then")
    act(session, [_planned(session, "execute", proposal, session.suite.timelock.execute(proposal))], by)


@app.command()
def cancel(by: Paying, which: IdOption = None) -> None:
    """Cancel a proposal that was not executed yet; name it if several are scheduled."""
    session = by.open()
    proposal = _scheduled(session, which)
    act(session, [_planned(session, "cancel", proposal, session.suite.timelock.call("cancel", proposal.id))], by)


def _propose(session: "Session", call: "ContractCall[Receipt]", title: str, by: Paying) -> None:
    """Schedule a call that would succeed if the timelock made it now, but for having to wait its turn."""
    from chain.errors import ContractError

    timelock = session.suite.timelock
    try:
        session.client.simulate(call, timelock.address)
    except ContractError as error:
        if error.name != "TooSoon":
            raise
    planned = PlannedTransaction(f"propose to {title}", timelock.schedule(call, secrets.token_bytes(32)))

    def outcome(receipts: list["Receipt"]) -> tuple[dict[str, Any], str]:
        a = timelock.event(receipts[0], "CallScheduled").args
        key, ready_at = "0x" + a["id"].hex(), session.client.now() + a["delay"]
        return {"id": key, "ready_at": ready_at}, f"proposal {key} can be executed from {clock(ready_at)} on"

    act(session, [planned], by, outcome)


def _scheduled(session: "Session", which: str | None) -> "Proposal":
    """The one proposal, neither executed nor cancelled, whose id begins so. Raises ConfigError if it is not one."""
    proposals = session.state().proposals
    found = [p for key, p in proposals.items() if p.status == "scheduled" and key.startswith(which or "0x")]
    if len(found) != 1:
        what = f"{len(found) or 'no'} scheduled proposals" + (f" begin with {which}" if which else "")
        raise ConfigError(what, "see muster governance status, and name one with --id")
    return found[0]


def _planned(session: "Session", verb: str, proposal: "Proposal", call: "ContractCall[Receipt]") -> PlannedTransaction:
    from cli.views.governance import call_words

    words = "; ".join(call_words(one, session.deployment) for one in proposal.calls)
    return PlannedTransaction(f"{verb} proposal 0x{proposal.id.hex()}: {words}", call)


def _changed(session: "Session", values: list[str]) -> tuple[int, ...]:
    """The values last announced, with those changes, as the contract takes them."""
    from pydantic import ValidationError

    from chain.deployment import Penalties

    document: dict[str, Any] = dict(
        zip(Penalties.model_fields, session.suite.params.values(_END_OF_TIME).values(), strict=True)
    )
    for one in values:
        name, _, value = one.partition("=")
        if name not in document:
            raise ConfigError(f"--set {one}: there is no {name!r}", f"choose from {', '.join(document)}")
        document[name] = value if name.endswith("_bps") else parse_tokens(value, f"--set {name}")
    try:
        return Penalties.model_validate(document).as_tuple()
    except ValidationError as error:
        field, problem = first_problem(error.errors(), "the values")
        raise ConfigError(f"--set {field}: {problem}", "see docs/reference/contracts.md, Parameters") from None
