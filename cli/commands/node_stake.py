"""`muster node check, consent, register, stake, withdraw`: the machine, the node's key, and the stake behind it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import (
    Acting,
    AmountOption,
    DeploymentOption,
    JsonOption,
    KeyOptions,
    NodeOption,
    OutFileOption,
    Paying,
    grouped,
    key_path,
    parse_address,
)
from cli.output import clock, emit, fields
from cli.plan import PlannedTransaction, act
from protocol.amounts import parse_tokens, show_tokens
from protocol.errors import ConfigError

if TYPE_CHECKING:
    from chain.contracts.stakes import NodeView
    from cli.authorisations import Consent
    from cli.session import Session

_CONSENT_SECONDS = 3600

NodeKeyOption = Annotated[
    Path | None, typer.Option("--node-keystore", help="Key file of the node, which consents to its operator.")
]
NodePasswordOption = Annotated[Path | None, typer.Option("--node-password-file", help="Password of the node's key.")]
ConsentOption = Annotated[
    Path | None, typer.Option("--consent", help="The node's consent (muster node consent), if its key is elsewhere.")
]
ApproveOption = Annotated[
    bool, typer.Option("--approve", help="Allow Stakes with a transaction of its own, for tokens without permit.")
]


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


@grouped
def consent(
    operator: Annotated[str, typer.Option("--operator", help="Address of the operator.")],
    out: OutFileOption,
    key: KeyOptions,
    deployment: DeploymentOption = None,
    hours: Annotated[int, typer.Option("--hours", min=1, max=8760, help="How long it is valid.")] = 24,
) -> None:
    """On the node's machine: let an operator register this node's key. Works offline; hand over the file."""
    import time

    from cli import authorisations
    from cli.session import load_deployment
    from runtime.keystore import open_key

    suite = load_deployment(deployment)
    operator_address = parse_address(operator, "--operator")
    account = open_key(key_path(key.keystore), key.password_file, "node key")
    node, expiry = str(account.address), int(time.time()) + hours * 3600
    consent = authorisations.Consent(suite.chain_id, suite.address("Stakes"), node, operator_address, expiry)
    authorisations.write(authorisations.sign(consent, account), out)
    emit(
        {"node": node, "operator": consent.operator, "expiry": expiry, "file": str(out)},
        key.json,
        lambda: f"{out}: node {node} consents to operator {consent.operator} until {clock(expiry)}",
    )


@grouped
def register(
    stake: Annotated[str, typer.Option(help='Tokens, such as "12.5".')],
    by: Paying,
    node_keystore: NodeKeyOption = None,
    node_password_file: NodePasswordOption = None,
    consent_file: ConsentOption = None,
    approve: ApproveOption = False,
) -> None:
    """Register a node under your operator key (--keystore) and stake for it, with the node key's consent."""
    grains = parse_tokens(stake, "--stake")
    session = by.open()
    consent = _node_consent(session, node_keystore, node_password_file, consent_file)
    title = f"register node {consent.node} and stake {show_tokens(grains)} tokens"
    stakes, base = session.suite.stakes, (consent.node, grains, consent.expiry, consent.signature)
    if approve:
        call = stakes.register_node(*base)
    else:
        permit = session.suite.token.sign_permit(session.account, stakes.address, grains, consent.expiry)
        call = stakes.register_node_with_permit(*base, permit)
    operator = session.client.address
    act(
        session,
        [PlannedTransaction(title, call, ask=True)],
        by.mode,
        node=consent.node,
        operator=operator,
        stake=grains,
    )


def _node_consent(
    session: "Session", node_keystore: Path | None, node_password_file: Path | None, consent_file: Path | None
) -> "Consent":
    """The node's consent to this operator: from a file, or signed now with the node's key."""
    from cli import authorisations
    from runtime.keystore import open_key

    if (node_keystore is None) == (consent_file is None):
        raise ConfigError("the node's consent is missing or given twice", "pass --node-keystore or --consent")
    stakes, now = session.suite.stakes.address, session.client.now()
    if consent_file is not None:
        given = authorisations.read(authorisations.Consent, consent_file)
        expected = authorisations.Consent(session.client.chain_id, stakes, given.node, session.client.address, now)
        authorisations.check(given, expected, given.node, consent_file)
        return given
    account = open_key(key_path(node_keystore), node_password_file, "node key")
    node, expiry = str(account.address), now + _CONSENT_SECONDS
    return authorisations.sign(
        authorisations.Consent(session.client.chain_id, stakes, node, session.client.address, expiry), account
    )


@grouped
def stake(node: NodeOption, amount: AmountOption, by: Paying) -> None:
    """Add stake to a node; in a pool, its limit of work in flight grows with it."""
    grains, address = parse_tokens(amount, "--amount"), parse_address(node, "--node")
    session = by.open()
    pool = session.suite.stakes.node_of(address).pool
    title = f"stake {show_tokens(grains)} tokens for node {address}"
    transactions = [PlannedTransaction(title, session.suite.stakes.deposit(address, grains), ask=True)]
    if pool:
        refresh = session.suite.pools.refresh(pool, address)
        transactions.append(PlannedTransaction(f"raise its limit in pool {pool}", refresh, after=True))
    act(session, transactions, by.mode, node=address, added=grains)


@grouped
def withdraw(
    node: NodeOption,
    by: Acting,
    amount: Annotated[str | None, typer.Option("--amount", help='Tokens, such as "12.5"; all if missing.')] = None,
) -> None:
    """Take stake out, to the operator, once the node is in no pool and its unbonding time is over."""
    address = parse_address(node, "--node")
    session = by.open()
    stakes = session.suite.stakes
    known, free = stakes.node_of(address), stakes.withdrawable(address)
    grains = free if amount is None else parse_tokens(amount, "--amount")
    if not free or grains > free:
        raise ConfigError(f"{show_tokens(free)} tokens of {address} can be withdrawn now", _locked(known))
    planned = PlannedTransaction(f"withdraw {show_tokens(grains)} tokens", stakes.withdraw(address, grains))
    act(session, [planned], by.mode, node=address, grains=grains)


def _locked(known: "NodeView") -> str:
    if known.pool:
        return f"first: muster node leave --pool {known.pool}"
    if known.frozen:
        return f"wait until {known.frozen} rejected files are final"
    return f"the rest unlocks at {clock(known.release_at)}" if known.stake else "there is no stake"
