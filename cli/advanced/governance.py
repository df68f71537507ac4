"""`muster governance`: propose a pause or minting to the timelock, and execute when its delay is over."""

import secrets
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import Commands, Paying, Reading, parse_address
from cli.output import clock, emit, fields, table
from cli.plan import PlannedTransaction, act
from protocol.encoding import parse_tokens, show_tokens
from protocol.errors import ConfigError, printable

if TYPE_CHECKING:
    from chain.contracts import ContractCall
    from chain.deployment import Deployment
    from chain.indexer.records import ProposedCall
    from chain.indexer.state import State
    from chain.transactions import Receipt
    from cli.session import Session

app = Commands(help="Pause and minting, through the timelock.", no_args_is_help=True)


@app.command("status", "muster governance status --deployment deployment.json")
def status(look: Reading) -> None:
    """Show who governs, the penalties, which are fixed, and every proposal with what it does."""
    session = look.open()
    suite, state = session.suite, session.state()
    view = _view(state, session.deployment, session.client.now()) | {
        "timelock": suite.timelock.address,
        "delay": suite.timelock.get_min_delay(),
        "owner": suite.params.read("owner"),
        "minter": suite.token.read("owner") if session.deployment.token.ours else None,
        "values": suite.params.values(),
    }
    emit(view, look.json, lambda: _text(view))


@app.command("propose", "muster governance propose --pause --keystore governor.json")
def propose(
    by: Paying,
    pause: Annotated[
        bool, typer.Option("--pause", help="Refuse new nodes, seats, pools and members for a week.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Allow them again before the pause ends by itself.")] = False,
    mint: Annotated[str | None, typer.Option(metavar="ADDRESS=TOKENS", help="Mint test tokens for an address.")] = None,
) -> None:
    """Propose a pause, its end, or test tokens. The guardian pauses at once; the token's owner mints at once."""
    if sum((pause, resume, mint is not None)) != 1:
        raise ConfigError("one change is proposed at a time", "pass one of --pause, --resume and --mint")
    session = by.open()
    params = session.suite.params
    if pause and session.suite.timelock.is_guardian(session.client.address):
        act(session, [PlannedTransaction("pause new entries now", session.suite.timelock.call("pause"))], by)
    elif pause or resume:
        _schedule(session, params.call("setPaused", pause), "pause new entries" if pause else "allow new entries", by)
    else:  # at once with the key that owns the token, by proposal where the timelock owns it
        address, _, amount = (mint or "").partition("=")
        to, base_units = parse_address(address, "--mint"), parse_tokens(amount, "--mint")
        token = session.suite.token
        if not session.deployment.token.ours:
            raise ConfigError("nobody here can mint this deployment's token", "get its tokens where they are traded")
        title, call = f"mint {show_tokens(base_units)} tokens for {to}", token.mint(to, base_units)
        if token.read("owner") == session.suite.timelock.address:
            _schedule(session, call, title, by)
        else:
            act(session, [PlannedTransaction(title, call)], by, to=to, base_units=base_units)


@app.command("execute", "muster governance execute --id 0x12 --keystore governor.json")
def execute(
    by: Paying,
    which: Annotated[str | None, typer.Option("--id", help="The proposal's id, or how it begins.")] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel it instead.")] = False,
) -> None:
    """Execute a proposal whose time has come, or cancel one; name it if several are scheduled."""
    session = by.open()
    timelock = session.suite.timelock
    matching = [proposal for proposal in session.state().proposals.values() if proposal.status == "scheduled"]
    matching = [proposal for proposal in matching if f"0x{proposal.id.hex()}".startswith(which or "0x")]
    if len(matching) != 1:
        what = f"{len(matching) or 'no'} scheduled proposals" + (f" begin with {which}" if which else "")
        raise ConfigError(what, "see muster governance status, and name one with --id")
    (proposal,) = matching
    if not cancel and proposal.ready_at > session.client.now():
        raise ConfigError(f"the proposal cannot be executed before {clock(proposal.ready_at)}", "run this again then")
    call = timelock.call("cancel", proposal.id) if cancel else timelock.execute(proposal)
    words = "; ".join(call_words(call, session.deployment) for call in proposal.calls)
    title = f"{'cancel' if cancel else 'execute'} proposal 0x{proposal.id.hex()}: {words}"
    act(session, [PlannedTransaction(title, call)], by)


def _schedule(session: "Session", call: "ContractCall[Receipt]", title: str, by: Paying) -> None:
    """Schedule a call that would succeed if the timelock made it now."""
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


def _view(state: "State", deployment: "Deployment", now: int) -> dict[str, Any]:
    """Return the document of `muster governance status`, without what only the chain can say."""
    proposals = [
        {
            "id": "0x" + scheduled.id.hex(),
            "status": "ready" if scheduled.status == "scheduled" and now >= scheduled.ready_at else scheduled.status,
            "ready_at": scheduled.ready_at,
            "block": scheduled.block,
            "calls": [call_words(call, deployment) for call in scheduled.calls],
        }
        for scheduled in state.proposals.values()
    ]
    return {
        "roles": state.roles,
        "paused_until": state.paused_until if state.paused_until > now else None,
        "proposals": proposals,
    }


def call_words(call: "ProposedCall", deployment: "Deployment") -> str:
    """Return `Params.setPaused(paused_=False)`, or the bytes of a call that no contract of the suite has."""
    from chain import abi

    contract = deployment.names().get(call.target, "")
    functions = abi.load(contract).functions.values() if contract else ()
    for function in functions:
        if call.data[:4] == function.selector:
            try:
                arguments = function.inputs.named(call.data[4:])
            except ConfigError:
                break
            shown = ", ".join(f"{k}={'0x' + v.hex() if isinstance(v, bytes) else v}" for k, v in arguments.items())
            return printable(f"{contract}.{function.name}({shown})", 2000)
    return f"{contract or call.target}: 0x{call.data.hex()}"


def _text(view: dict[str, Any]) -> str:
    roles = {role: ", ".join(holders) or "nobody" for role, holders in view["roles"].items()}
    facts = {
        "timelock": f"{view['timelock']}, delay {view['delay']} s",
        "pause": f"owned by {view['owner']}",
        "test token": f"minted by {view['minter']}",
        **roles,
        "new entries": f"paused until {clock(view['paused_until'])}" if view["paused_until"] else "open",
    }
    penalties = [[name, _amount(name, value)] for name, value in view["values"].items()]
    proposals = [[p["id"], p["status"], clock(p["ready_at"]), "; ".join(p["calls"])] for p in view["proposals"]]
    return "\n\n".join(
        (
            fields(facts),
            table(["penalty", "fixed at"], penalties),
            table(["proposal", "status", "ready at", "calls"], proposals, "no proposal yet"),
        )
    )


def _amount(name: str, value: int) -> str:
    return f"{value / 100:g}%" if name.endswith("Bps") else f"{show_tokens(value)} tokens"
