"""`muster node`: what a node operator does, from checking the hardware to taking the stake back."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import (
    DeploymentOption,
    DryRunOption,
    JsonOption,
    KeystoreOption,
    PasswordFileOption,
    PoolOption,
    RpcOption,
    YesOption,
)
from cli.output import clock, emit, fields, seconds, table
from protocol.errors import ConfigError

if TYPE_CHECKING:
    from cli.consents import Consent
    from cli.session import Session
    from protocol.chain.contracts import NodeView
    from protocol.chain.state import State

app = typer.Typer(help="Run a node: register, stake, join, earn, leave.", no_args_is_help=True)
_CONSENT_SECONDS = 3600

NodeOption = Annotated[str, typer.Option("--node", help="Address of the node.")]
NodeKeyOption = Annotated[
    Path | None, typer.Option("--node-keystore", help="Key file of the node, which consents to its operator.")
]
NodePasswordOption = Annotated[Path | None, typer.Option("--node-password-file", help="Password of the node's key.")]
ConsentOption = Annotated[
    Path | None, typer.Option("--consent", help="The node's consent (muster node consent), if its key is elsewhere.")
]
TokensOption = Annotated[str, typer.Option(help='Tokens, such as "12.5".')]
MaybeTokensOption = Annotated[str | None, typer.Option("--amount", help='Tokens, such as "12.5"; all if missing.')]
InviteOption = Annotated[Path | None, typer.Option("--invite", help="Invite of the pool's owner.")]
EvidenceOption = Annotated[
    str | None, typer.Option("--orchestrator", help="URL of the pool's service: show the judges' findings, too.")
]
ApproveOption = Annotated[
    bool, typer.Option("--approve", help="Allow Stakes with a transaction of its own, for tokens without permit.")
]


@app.command()
def check(
    data: Annotated[Path, typer.Option("--data", help="Folder where the node would keep its data.")] = Path("."),
    json: JsonOption = False,
) -> None:
    """Look at this machine's processors, memory, disk, GPUs and engines. Exit code 1 if it cannot be a node."""
    from cli.hardware import GIB, survey

    found = survey(data)
    problems = found.problems()
    lines = {
        "system": found.system,
        "processor": f"{found.cpu}, {found.cores} cores",
        "memory": f"{found.memory / GIB:.1f} GiB, {found.memory_free / GIB:.1f} GiB free",
        "disk": f"{found.disk_free / GIB:.1f} GiB free",
        "gpus": ", ".join(f"{g.name} ({g.memory / GIB:.0f} GiB)" for g in found.gpus) or "none: it will use the CPU",
        "engines": ", ".join(name for name, there in found.engines.items() if there) or "none",
        "verdict": "; ".join(problems) or "fit to be a node",
    }
    emit({**found.document(), "problems": problems}, json, lambda: fields(lines))
    if problems:
        raise typer.Exit(1)


@app.command()
def consent(
    operator: Annotated[str, typer.Option("--operator", help="Address of the operator.")],
    out: Annotated[Path, typer.Option("--out", help="File to write.")],
    keystore: KeystoreOption = None,
    password_file: PasswordFileOption = None,
    deployment: DeploymentOption = None,
    hours: Annotated[int, typer.Option("--hours", min=1, max=8760, help="How long it is valid.")] = 24,
    json: JsonOption = False,
) -> None:
    """On the node's machine: let an operator register this node's key. Works offline; hand over the file."""
    import time

    from cli import consents
    from cli.options import open_key
    from cli.session import load_deployment, parse_address

    suite = load_deployment(deployment)
    operator_address = parse_address(operator, "--operator")
    account = open_key(keystore, password_file, "node key")
    paper = consents.Consent(
        suite.chain_id,
        suite.address("Stakes"),
        str(account.address),
        operator_address,
        int(time.time()) + hours * 3600,
    )
    consents.write(consents.sign(paper, account), out)
    emit(
        {"node": paper.node, "operator": paper.operator, "expiry": paper.expiry, "file": str(out)},
        json,
        lambda: f"{out}: node {paper.node} consents to operator {paper.operator} until {clock(paper.expiry)}",
    )


@app.command()
def register(
    stake: TokensOption,
    node_keystore: NodeKeyOption = None,
    node_password_file: NodePasswordOption = None,
    consent_file: ConsentOption = None,
    approve: ApproveOption = False,
    keystore: KeystoreOption = None,
    password_file: PasswordFileOption = None,
    deployment: DeploymentOption = None,
    rpc: RpcOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Register a node under your operator key (--keystore) and stake for it, with the node key's consent."""
    from cli.amounts import parse_tokens, show_tokens
    from cli.moves import Mode, Move, act
    from cli.session import open_signing

    grains = parse_tokens(stake, "--stake")
    session = open_signing(deployment, rpc, keystore, password_file)
    paper = _node_consent(session, node_keystore, node_password_file, consent_file)
    title = f"register node {paper.node} and stake {show_tokens(grains)} tokens"
    stakes, base = session.suite.stakes, (paper.node, grains, paper.expiry, paper.signature)
    allowance: list[Move] = []
    if approve:
        allowance = session.approval(stakes, grains)
        call = stakes.call("registerNode", *base)
    else:
        call = stakes.call("registerNodeWithPermit", *base, session.permit(stakes, grains, paper.expiry))
    move = Move(title, call, grains, ask=True, after=bool(allowance))
    act(session, [*allowance, move], Mode(dry_run, yes, json), node=paper.node, operator=session.address, stake=grains)


def _node_consent(
    session: "Session", node_keystore: Path | None, node_password_file: Path | None, consent_file: Path | None
) -> "Consent":
    """The node's consent to this operator: from a file, or signed now with the node's key."""
    from cli import consents
    from cli.options import open_key

    if (node_keystore is None) == (consent_file is None):
        raise ConfigError("the node's consent is missing or given twice", "pass --node-keystore or --consent")
    stakes, now = session.suite.stakes.address, session.client.now()
    if consent_file is not None:
        given = consents.read(consents.Consent, consent_file)
        here = consents.Consent(session.client.chain_id, stakes, given.node, session.address, now)
        consents.check(given, here, given.node, consent_file)
        return given
    account = open_key(node_keystore, node_password_file, "node key")
    node, expiry = str(account.address), now + _CONSENT_SECONDS
    return consents.sign(consents.Consent(session.client.chain_id, stakes, node, session.address, expiry), account)


@app.command()
def stake(
    node: NodeOption,
    amount: Annotated[str, typer.Option("--amount", help='Tokens, such as "12.5".')],
    keystore: KeystoreOption = None,
    password_file: PasswordFileOption = None,
    deployment: DeploymentOption = None,
    rpc: RpcOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Add stake to a node; in a pool, its limit of work in flight grows with it."""
    from cli.amounts import parse_tokens, show_tokens
    from cli.moves import Mode, Move, act
    from cli.session import open_signing, parse_address

    grains, address = parse_tokens(amount, "--amount"), parse_address(node, "--node")
    session = open_signing(deployment, rpc, keystore, password_file)
    stakes = session.suite.stakes
    pool = stakes.node_of(address).pool
    allowance = session.approval(stakes, grains)
    title = f"stake {show_tokens(grains)} tokens for node {address}"
    call = stakes.call("deposit", address, grains)
    moves = [*allowance, Move(title, call, grains, ask=True, after=bool(allowance))]
    if pool:
        refresh = session.suite.pools.call("refresh", pool, address)
        moves.append(Move(f"raise its limit in pool {pool}", refresh, after=True))
    act(session, moves, Mode(dry_run, yes, json), node=address, added=grains)


@app.command()
def join(
    pool: PoolOption,
    node: NodeOption,
    invite: InviteOption = None,
    keystore: KeystoreOption = None,
    password_file: PasswordFileOption = None,
    deployment: DeploymentOption = None,
    rpc: RpcOption = None,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Join a pool with a registered node (as its operator or the node itself); closed pools need an invite."""
    from cli import consents
    from cli.amounts import show_tokens
    from cli.moves import Mode, Move, act
    from cli.session import open_signing, parse_address

    address = parse_address(node, "--node")
    session = open_signing(deployment, rpc, keystore, password_file)
    pools = session.suite.pools
    view = session.pool(pool)
    if invite is None:
        call = pools.call("join", pool, address)
    else:
        paper = consents.read(consents.Invite, invite)
        here = consents.Invite(session.client.chain_id, pools.address, pool, address, session.client.now())
        consents.check(paper, here, view.owner, invite)
        call = pools.call("joinWithInvite", pool, address, paper.expiry, paper.signature)
    terms = view.terms
    if not json:
        typer.echo(
            f"pool {pool} pays {show_tokens(terms.rate)} tokens per verified output token, wants a stake of "
            f"{show_tokens(terms.minStake)}, pays {seconds(terms.challengeWindow)} after acceptance; "
            f"configuration SHA-256 {terms.configHash.hex()}"
        )
    act(session, [Move(f"node {address} joins pool {pool}", call)], Mode(dry_run, True, json), pool=pool, node=address)


@app.command()
def status(
    node: NodeOption,
    pool: Annotated[int | None, typer.Option("--pool", help="Only this pool.")] = None,
    deployment: DeploymentOption = None,
    rpc: RpcOption = None,
    last: Annotated[int, typer.Option("--last", min=0, help="Show that many submissions; 0 for all.")] = 20,
    orchestrator: EvidenceOption = None,
    json: JsonOption = False,
) -> None:
    """Stake, pools, what was earned, what is pending or claimable, and why any submission was rejected."""
    from cli.evidence import explain
    from cli.session import open_session, parse_address
    from cli.views.nodes import node_view

    address = parse_address(node, "--node")
    session = open_session(deployment, rpc)
    state = session.state()
    view = node_view(state, address, session.client.now(), pool)
    if view is None:
        raise ConfigError(f"{address} is not registered on this chain", "muster node register")
    view["wei"] = session.client.balance(address)
    for account in view["accounts"] if orchestrator else ():
        for shown in account["submissions"][-last:]:
            if shown["reason"]:
                sub = state.submissions[account["pool"], shown["sequence"]]
                shown["evidence"] = explain(state, sub, orchestrator or "")
    emit(view, json, lambda: _status_text(view, last))


def _status_text(view: dict[str, Any], last: int) -> str:
    from cli.amounts import show_tokens

    lines = {
        "node": view["node"],
        "operator": view["operator"],
        "stake": f"{show_tokens(view['stake'])} tokens, {show_tokens(view['withdrawable'])} can be withdrawn now",
        "pool": view["pool"] or "none",
        "gas": f"{view['wei'] / 10**18:.6f} ETH",
    }
    if view["slashed"]:
        lines["slashed"] = f"{show_tokens(view['slashed'])} tokens"
    if not view["pool"] and view["release_at"]:
        lines["released"] = clock(view["release_at"])
    return "\n\n".join([fields(lines), *(_account_text(account, last) for account in view["accounts"])])


def _account_text(account: dict[str, Any], last: int) -> str:
    from cli.amounts import show_tokens

    units = account["units"]
    lines = {
        f"pool {account['pool']}": account["standing"],
        "earned": f"{show_tokens(account['earned'])} tokens for {units['accepted']} verified output tokens",
        "pending": f"{show_tokens(account['pending'])} tokens, not judged yet",
        "vesting": f"{show_tokens(account['vesting'])} tokens, accepted and within the challenge window",
        "claimable": f"{show_tokens(account['claimable'])} tokens (muster node claim)",
        "paid": f"{show_tokens(account['paid'])} tokens",
    }
    if account["slashed"]:
        lines["slashed"] = f"{show_tokens(account['slashed'])} tokens"
    rows = [
        [s["sequence"], s["step"], s["counter"], s["units"], s["status"], s["reason"] or s["waiting"]]
        for s in account["submissions"][-last:]
    ]
    headers = ["file", "step", "counter", "units", "status", "why, or what it waits for"]
    evidence = [f"file {s['sequence']}: {e}" for s in account["submissions"][-last:] for e in s.get("evidence", ())]
    return "\n".join([fields(lines), table(headers, rows, empty="no submissions yet"), *evidence])


@app.command()
def claim(
    pool: PoolOption,
    node: NodeOption,
    keystore: KeystoreOption = None,
    password_file: PasswordFileOption = None,
    deployment: DeploymentOption = None,
    rpc: RpcOption = None,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Pay out everything that has vested, to the node's operator. Any key may send it."""
    from cli.amounts import show_tokens
    from cli.moves import Mode, Move, act
    from cli.session import open_signing, parse_address

    address = parse_address(node, "--node")
    session = open_signing(deployment, rpc, keystore, password_file)
    state, now = session.state(), session.client.now()
    hint = state.claim_hint(pool, address, now)
    if hint is None:
        raise ConfigError(
            f"nothing of {address} in pool {pool} can be claimed now", _next_vesting(state, pool, address)
        )
    units = hint.cumulative - state.accounts[pool, address].units_drawn
    grains = units * state.pools[pool].terms.rate
    call = session.suite.pools.call("claim", pool, address, hint.sequence, hint.inner)
    move = Move(f"claim {show_tokens(grains)} tokens for {units} output tokens", call)
    act(session, [move], Mode(dry_run, True, json), pool=pool, node=address, units=units, grains=grains)


def _next_vesting(state: "State", pool: int, node: str) -> str:
    account = state.accounts.get((pool, node))
    if account is None:
        return "check --pool and --node"
    times = [s.final_time for s in state.submissions_of(pool, node) if s.cumulative > account.units_drawn]
    return f"the next pay vests at {clock(min(times))}" if times else "see: muster node status"


@app.command()
def dispute(
    pool: PoolOption,
    file: Annotated[int, typer.Option("--file", min=0, help="Number of the submission in the pool.")],
    keystore: KeystoreOption = None,
    password_file: PasswordFileOption = None,
    deployment: DeploymentOption = None,
    rpc: RpcOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Bring a committee's outcome before a jury, while it can be challenged. The deposit returns to who is right."""
    from cli.amounts import show_tokens
    from cli.moves import Mode, Move, act
    from cli.session import open_signing

    session = open_signing(deployment, rpc, keystore, password_file)
    sub = session.state().submissions.get((pool, file))
    if sub is None:
        raise ConfigError(f"there is no file {file} in pool {pool}", "see: muster node status")
    appeals = session.suite.appeals
    deposit = appeals.deposit_of(pool)
    allowance = session.approval(appeals, deposit)
    title = f"dispute file {file} of pool {pool} with a deposit of {show_tokens(deposit)} tokens"
    call = appeals.call("dispute", pool, file, sub.file_data)
    move = Move(title, call, deposit, ask=True, after=bool(allowance))
    act(session, [*allowance, move], Mode(dry_run, yes, json), pool=pool, file=file, deposit=deposit)


@app.command()
def leave(
    pool: PoolOption,
    node: NodeOption,
    keystore: KeystoreOption = None,
    password_file: PasswordFileOption = None,
    deployment: DeploymentOption = None,
    rpc: RpcOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Leave a pool: no more submissions; the stake unlocks after the pool's unbonding time."""
    from cli.moves import Mode, Move, act
    from cli.session import open_signing, parse_address

    address = parse_address(node, "--node")
    session = open_signing(deployment, rpc, keystore, password_file)
    unbonding = session.pool(pool).unbonding
    title = f"node {address} leaves pool {pool}; its stake unlocks {seconds(unbonding)} later"
    move = Move(title, session.suite.pools.call("leavePool", pool, address), ask=True)
    act(session, [move], Mode(dry_run, yes, json), pool=pool, node=address, unbonding=unbonding)


@app.command()
def withdraw(
    node: NodeOption,
    amount: MaybeTokensOption = None,
    keystore: KeystoreOption = None,
    password_file: PasswordFileOption = None,
    deployment: DeploymentOption = None,
    rpc: RpcOption = None,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Take stake out, to the operator, once the node is in no pool and its unbonding time is over."""
    from cli.amounts import parse_tokens, show_tokens
    from cli.moves import Mode, Move, act
    from cli.session import open_signing, parse_address

    address = parse_address(node, "--node")
    session = open_signing(deployment, rpc, keystore, password_file)
    stakes = session.suite.stakes
    known, free = stakes.node_of(address), stakes.withdrawable(address)
    grains = free if amount is None else parse_tokens(amount, "--amount")
    if not free or grains > free:
        raise ConfigError(f"{show_tokens(free)} tokens of {address} can be withdrawn now", _locked(known))
    move = Move(f"withdraw {show_tokens(grains)} tokens", stakes.call("withdraw", address, grains))
    act(session, [move], Mode(dry_run, True, json), node=address, grains=grains)


def _locked(known: "NodeView") -> str:
    if known.pool:
        return f"first: muster node leave --pool {known.pool}"
    if known.frozen:
        return f"wait until {known.frozen} rejected files are final"
    return f"the rest unlocks at {clock(known.release_at)}" if known.stake else "there is no stake"
