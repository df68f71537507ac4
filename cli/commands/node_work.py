"""`muster node join, claim, dispute, announce, leave`: a node's part in a pool."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import Acting, NodeOption, Paying, PoolOption
from cli.output import clock, seconds
from cli.plan import PlannedTransaction, act
from protocol.amounts import show_tokens
from protocol.errors import ConfigError

if TYPE_CHECKING:
    from chain.indexer.records import Submission
    from chain.indexer.state import State
    from cli.session import Session

FileOption = Annotated[int, typer.Option("--file", min=0, help="Number of the submission in the pool.")]


def join(
    pool: PoolOption,
    node: NodeOption,
    by: Acting,
    invite: Annotated[Path | None, typer.Option(help="Invite of the pool's owner.")] = None,
) -> None:
    """Join a pool with a registered node (as its operator or the node itself); closed pools need an invite."""
    from cli.authorisations import Invite
    from cli.views.pools import judging_seats
    from cli.views.texts import seats_line
    from protocol.encoding import load_document

    session = by.open()
    pools = session.suite.pools
    view = session.pool(pool)
    if invite is None:
        call = pools.join(pool, node)
    else:
        chain, now = session.client.chain_id, session.client.now()
        given = load_document(invite, Invite)
        expected = Invite(chain_id=chain, contract=pools.address, pool=pool, node=node, expiry=now)
        given.check(expected, view.owner, invite)
        call = pools.join_with_invite(pool, node, given.expiry, given.signature)
    terms = session.suite.court.terms_of(pool)
    if not by.json:
        state = session.state()
        seats = judging_seats(state, state.pools[pool])
        typer.echo(
            f"pool {pool} pays {show_tokens(terms.rate)} tokens per verified output token, wants a stake of "
            f"{show_tokens(terms.minStake)}, pays {seconds(terms.challengeWindow)} after acceptance; "
            f"configuration SHA-256 {terms.configHash.hex()}; {seats_line(seats)}"
        )
    act(session, [PlannedTransaction(f"node {node} joins pool {pool}", call)], by, pool=pool, node=node)


def claim(pool: PoolOption, node: NodeOption, by: Acting) -> None:
    """Pay out everything that has vested, to the node's operator. Any key may send it."""
    session = by.open()
    state, now = session.state(), session.client.now()
    hint = state.claim_hint(pool, node, now)
    if hint is None:
        raise ConfigError(f"nothing of {node} in pool {pool} can be claimed now", _next_vesting(state, pool, node))
    units = hint.cumulative - state.accounts[pool, node].units_spent
    base_units = units * state.pools[pool].terms.rate
    title = f"claim {show_tokens(base_units)} tokens for {units} output tokens"
    planned = PlannedTransaction(title, session.suite.pools.claim(hint))
    act(session, [planned], by, pool=pool, node=node, units=units, base_units=base_units)


def _next_vesting(state: "State", pool: int, node: str) -> str:
    account = state.accounts.get((pool, node))
    if account is None:
        return "check --pool and --node"
    times = [s.final_time for s in state.submissions_of(pool, node) if s.cumulative > account.units_spent]
    return f"the next pay vests at {clock(min(times))}" if times else "see: muster node status"


def dispute(pool: PoolOption, file: FileOption, by: Paying) -> None:
    """Bring a committee's outcome before a jury, while it can be challenged. The deposit returns to who is right."""
    session = by.open()
    sub = _submission(session, pool, file)
    call = session.suite.appeals.dispute(sub)
    title = f"dispute file {file} of pool {pool} with a deposit of {show_tokens(call.base_units)} tokens"
    act(session, [PlannedTransaction(title, call)], by, pool=pool, file=file, deposit=call.base_units)


def announce(
    pool: PoolOption,
    file: FileOption,
    url: Annotated[str, typer.Option(help="Public http(s) URL that serves exactly the file's bytes.")],
    by: Acting,
) -> None:
    """As the node: tell validators where else a submitted file is, when the pool's own storage does not serve it."""
    from chain.indexer.records import MAX_MIRROR
    from storage.transfers import check_url

    session = by.open()
    sub = _submission(session, pool, file)
    if sub.node != session.client.address:
        raise ConfigError(f"file {file} is of node {sub.node}, not of {session.client.address}", "use that node's key")
    if len(check_url(url)) > MAX_MIRROR:
        raise ConfigError(f"--url has more than {MAX_MIRROR} characters", "use a shorter one")
    call = session.suite.pools.announce_mirror(pool, file, url)
    planned = PlannedTransaction(f"announce {url} for file {file}", call)
    act(session, [planned], by, pool=pool, file=file, url=url, sha256=sub.sha256.hex())


def _submission(session: "Session", pool: int, file: int) -> "Submission":
    sub = session.state().submissions.get((pool, file))
    if sub is None:
        raise ConfigError(f"there is no file {file} in pool {pool}", "see: muster node status")
    return sub


def leave(pool: PoolOption, node: NodeOption, by: Paying) -> None:
    """Leave a pool: no more submissions; the stake unlocks after the pool's unbonding time."""
    session = by.open()
    unbonding = session.pool(pool).unbonding
    title = f"node {node} leaves pool {pool}; its stake unlocks {seconds(unbonding)} later"
    planned = PlannedTransaction(title, session.suite.pools.leave_pool(pool, node))
    act(session, [planned], by, pool=pool, node=node, unbonding=unbonding)
