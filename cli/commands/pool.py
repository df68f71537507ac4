"""`muster pool`: what a pool's owner does with money and membership. The trainer publishes the steps."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.commands.pool_check import ConfigFile, TermsFileOption, check, refuse_what_cannot_work
from cli.commands.pool_init import init
from cli.commands.pool_status import status
from cli.options import (
    Acting,
    AmountOption,
    Commands,
    DeploymentOption,
    KeyOptions,
    NodeOption,
    OutFileOption,
    Paying,
    PoolOption,
    RpcOption,
    address_option,
    key_path,
    tokens_option,
)
from cli.output import clock, emit, fields, seconds
from cli.plan import PlannedTransaction, act
from protocol.amounts import show_tokens
from protocol.errors import ConfigError

if TYPE_CHECKING:
    from chain.contracts import ContractCall, Pools
    from chain.indexer.records import Terms
    from chain.transactions import Receipt
    from cli.session import Session
    from protocol.config import PoolConfig

ServiceOption = Annotated[
    str | None, address_option("--service", "Address of the key that attests uploads: the orchestrator's.")
]
UrlOption = Annotated[str | None, typer.Option("--url", help="Where the pool's service answers, for everybody to see.")]

app = Commands(help="Own a pool: budget, invites, life cycle.", no_args_is_help=True)
app.command()(init)
app.command()(check)
app.command()(status)
_ETHER = 10**18
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@app.command()
def create(
    config: ConfigFile,
    terms: TermsFileOption,
    budget: Annotated[int, tokens_option("--budget", 'Tokens to escrow, such as "1000".')],
    by: Paying,
    service: ServiceOption = None,
    url: UrlOption = None,
) -> None:
    """Create a pool and escrow its budget. Configuration and terms can never change. Its service's key can be named at
    once or with `set-service`; it takes work once enough seats judge it."""
    from cli.pool_plan import costs, warnings
    from cli.terms import load_terms
    from protocol.config import PoolConfig

    document = PoolConfig.load(config)
    values = load_terms(terms, document.digest)
    session = by.open()
    session.client.simulate(session.suite.params.call("checkTerms", values.as_tuple()))
    refuse_what_cannot_work(document, values, budget)
    unbonding = session.suite.params.unbonding_of(values.as_tuple())
    call = session.suite.pools.create_pool(values, budget)
    title = f"create pool “{document.name}” and escrow {show_tokens(budget)} tokens"
    number = session.suite.pools.pool_count() + 1  # another's pool, if one is made meanwhile, takes no service of ours
    planned = [PlannedTransaction(title, call), *_service_calls(session, number, service, url, after=True)]
    if not by.json:
        typer.echo(_terms_text(document, values, unbonding))
        typer.echo(costs(document, values, budget).text())
    warned = [one.line for one in warnings(document, values)]
    for line in warned:
        typer.echo(f"WARNING  {line}", err=True)

    def outcome(receipts: list["Receipt"]) -> tuple[dict[str, Any], str]:
        number = call.result(receipts[0])
        remember_pool(number)
        hint = f"its seats: muster pool status --pool {number}"
        return {"pool": number}, f"pool {number}; {hint if service else 'next: muster pool set-service'}"

    facts = {"config_hash": document.digest.hex(), "budget": budget, "unbonding": unbonding, "warnings": warned}
    if not by.dry_run:
        take_from_local_chain(session, budget, service)
    act(session, planned, by, outcome, **facts)


def take_from_local_chain(session: "Session", budget: int, service: str | None) -> None:
    """What owner and service lack of tokens and gas, where that costs nothing; elsewhere the plan says what is
    missing."""
    from cli.faucet import LocalFaucet

    faucet, owner = LocalFaucet.of(session.suite), session.account.address
    if faucet is None:
        return
    for address in filter(None, (owner, service)):
        if session.client.balance(address) < _ETHER:
            faucet.ether(address, _ETHER)
    if (lacks := budget - session.suite.token.balance_of(owner)) > 0:
        faucet.tokens(owner, lacks)


def remember_pool(pool: int) -> None:
    """In the owner's profile, if that names none yet."""
    from cli.profile import find_profile, profile_path
    from cli.profile_file import name_pool

    profile = find_profile("owner")
    if profile is not None and profile.pool is None:
        name_pool(profile_path("owner"), pool)


def _service_calls(
    session: "Session", pool: int, service: str | None, url: str | None, after: bool = False
) -> list[PlannedTransaction]:
    """What names a pool's service and announces where it answers. Raises ConfigError for what is no URL."""
    from protocol.http.signing import service_url

    court, planned = session.suite.court, []
    if service is not None:
        call = court.set_service(pool, service)
        planned.append(PlannedTransaction(f"pool {pool}'s service attests with key {service}", call, after))
    if url is not None:
        call = court.announce_service(pool, service_url(url))
        planned.append(PlannedTransaction(f"pool {pool}'s service answers at {service_url(url)}", call, after))
    return planned


@app.command("set-service")
def set_service(pool: PoolOption, by: Acting, service: ServiceOption = None, url: UrlOption = None) -> None:
    """Name the key of the pool's service, announce where it answers. A former key stays valid for the receipt window;
    until that is over it cannot be replaced again."""
    session = by.open()
    session.pool(pool)
    planned = _service_calls(session, pool, service, url)
    if not planned:
        raise ConfigError("nothing to set is named", "pass --service ADDRESS, --url URL, or both")
    act(session, planned, by, pool=pool, service=service, url=url)


@app.command()
def review(pool: PoolOption, by: Acting) -> None:
    """Count the seats that judge a pool, as they are in this epoch: it takes work once they are enough."""
    _change(lambda pools: pools.review_seats(pool), f"count the seats that judge pool {pool}", by, pool=pool)


def _terms_text(config: "PoolConfig", terms: "Terms", unbonding: int) -> str:
    from chain.indexer.state import describe, needed

    judges = describe(terms.group) if terms.group else "this pool alone"
    return fields(
        {
            "model": f"{config.model.source}, licence {config.model.license}",
            "pay": f"{show_tokens(terms.rate)} tokens per verified output token",
            "fees": f"{show_tokens(terms.fee)} per seat and file, {show_tokens(terms.juryFee)} per juror",
            "stake": f"{show_tokens(terms.minStake)} tokens at least; work in flight up to {terms.leverage} times it",
            "committee": f"{terms.committee} seats; juries of {terms.jury}, then {terms.appealJury or 'none'}",
            "judges": f"seats that chose {judges}, {needed(terms)} at least",
            "uploads": f"attested within {terms.attestBlocks} blocks; receipts hold {seconds(terms.receiptWindow)}",
            "audit": f"{terms.audit_fraction:.0%} of rollouts",
            "windows": f"commit {seconds(terms.commitWindow)}, reveal {seconds(terms.revealWindow)}, "
            f"challenge {seconds(terms.challengeWindow)}",
            "unbonding": f"{seconds(unbonding)} after a node leaves",
            "membership": "by invite" if terms.inviteOnly else "open to every staked node",
            "config": terms.configHash.hex(),
        }
    )


@app.command()
def fund(pool: PoolOption, amount: AmountOption, by: Paying) -> None:
    """Add to a pool's budget."""
    title = f"add {show_tokens(amount)} tokens to pool {pool}"
    _change(lambda pools: pools.fund(pool, amount), title, by, pool=pool, added=amount)


@app.command()
def invite(
    pool: PoolOption,
    node: NodeOption,
    out: OutFileOption,
    key: KeyOptions,
    deployment: DeploymentOption = None,
    rpc: RpcOption = None,
    valid: Annotated[str, typer.Option("--for", help="How long it can be used: 30m, 12h, 7d.")] = "7d",
) -> None:
    """Sign an invite for a node into a file; costs nothing, sends nothing. Hand the file to the node's operator."""
    from cli.authorisations import Invite
    from cli.session import open_session

    period = parse_period(valid, "--for")
    session = open_session(deployment, rpc, key_path(key.keystore), key.password_file)
    owner = session.pool(pool).owner
    if owner != session.client.address:
        raise ConfigError(f"pool {pool} is owned by {owner}, not by {session.client.address}", "use the owner's key")
    pools, chain, expiry = session.suite.pools.address, session.client.chain_id, session.client.now() + period
    invite = Invite(chain_id=chain, contract=pools, pool=pool, node=node, expiry=expiry)
    invite.signed(session.account).write(out)
    emit(
        {"pool": pool, "node": node, "expiry": expiry, "file": str(out)},
        key.json,
        lambda: f"{out}: invites {node} to pool {pool} until {clock(expiry)}",
    )


def parse_period(text: str, what: str) -> int:
    """Seconds of `30m`, `12h`, `7d`. Raises ConfigError."""
    match = re.fullmatch(r"([1-9]\d{0,6})([smhd])", text.strip(), re.ASCII)
    if match is None:
        raise ConfigError(f"{what} {text!r} is not a period", "write it like 30m, 12h or 7d")
    return int(match[1]) * _UNITS[match[2]]


@app.command()
def pause(pool: PoolOption, by: Acting) -> None:
    """No new joins or submissions until resumed; votes, pay and disputes go on."""
    _change(lambda pools: pools.pause_pool(pool), f"pause pool {pool}", by, pool=pool)


@app.command()
def resume(pool: PoolOption, by: Acting) -> None:
    """Open a paused pool again."""
    _change(lambda pools: pools.resume_pool(pool), f"resume pool {pool}", by, pool=pool)


@app.command()
def close(pool: PoolOption, by: Paying) -> None:
    """Close a pool for good: no more joins, steps or submissions. The rest of the budget follows with `settle`."""
    _change(lambda pools: pools.close_pool(pool), f"close for good pool {pool}", by, pool=pool)


@app.command()
def settle(pool: PoolOption, by: Acting) -> None:
    """After a closed pool's last window: take the free budget back."""
    from cli.session import open_session

    session = open_session(by.deployment, by.rpc)
    view, now = session.pool(pool), session.client.now()
    if view.settle_at > now:
        raise ConfigError(f"pool {pool} can be settled at {clock(view.settle_at)}", "run this again then")
    _change(lambda pools: pools.settle_pool(pool), f"take the leftovers of pool {pool}", by, pool=pool)


@app.command("remove-node")
def remove_node(pool: PoolOption, node: NodeOption, by: Paying) -> None:
    """Keep a node from any later submission; its stake and its work so far are untouched."""
    title = f"remove node {node} from pool {pool} for good"
    _change(lambda pools: pools.remove_node(pool, node), title, by, pool=pool, node=node)


def _change(change: "Callable[[Pools], ContractCall[Any]]", title: str, by: Acting, *, pool: int, **facts: Any) -> None:
    """One call of a pool's owner."""
    session = by.open()
    session.pool(pool)
    act(session, [PlannedTransaction(title, change(session.suite.pools))], by, pool=pool, **facts)
