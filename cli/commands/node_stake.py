"""`muster node check, consent, register, stake, withdraw`: the machine, the node's key, and the stake behind it."""

from dataclasses import asdict
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
    address_option,
    key_path,
    tokens_option,
)
from cli.output import clock, emit, fields
from cli.plan import PlannedTransaction, act
from protocol.amounts import show_tokens
from protocol.errors import ConfigError, MusterError

if TYPE_CHECKING:
    from chain.contracts import NodeView
    from cli.authorisations import Consent
    from cli.session import Session

_CONSENT_SECONDS = 3600


def check(
    data: Annotated[Path, typer.Option(help="Folder where the node would keep its data.")] = Path("."),
    config: Annotated[Path | None, typer.Option(help="Configuration of the pool that it would join.")] = None,
    json: JsonOption = False,
) -> None:
    """Look at this machine's processors, memory, disk, GPUs and engines, and whether it scores as all others do, for a
    pool if its configuration is named. Exit code 1 if it cannot be a node."""
    from cli.hardware import GIB, survey
    from environments.conformance import quick_check
    from environments.registry import check_versions
    from protocol.config import PoolConfig

    found = survey(data)
    problems = found.problems()
    try:
        quick_check()
        if config is not None:
            pool = PoolConfig.load(config)
            check_versions(pool.environments, pool.scoring_versions)
    except MusterError as error:
        problems.append(f"{error.what}; {error.hint}")
    lines = {
        "system": found.system,
        "processor": f"{found.cpu}, {found.cores} cores",
        "memory": f"{found.memory / GIB:.1f} GiB, {found.memory_free / GIB:.1f} GiB free",
        "disk": f"{found.disk_free / GIB:.1f} GiB free",
        "gpus": ", ".join(f"{g.name} ({g.memory / GIB:.0f} GiB)" for g in found.gpus) or "none: it will use the CPU",
        "float32": "in full precision" if not found.imprecise else "in less: see the verdict",
        "engines": ", ".join(name for name, there in found.engines.items() if there) or "none",
        "scoring": "differs: see the verdict" if any("score" in one for one in problems) else "as everywhere",
        "verdict": "; ".join(problems) or "fit to be a node",
    }
    emit({**asdict(found), "problems": problems}, json, lambda: fields(lines))
    if problems:
        raise typer.Exit(1)


def consent(
    operator: Annotated[str, address_option("--operator", "Address of the operator.")],
    out: OutFileOption,
    key: KeyOptions,
    deployment: DeploymentOption = None,
    hours: Annotated[int, typer.Option(min=1, max=8760, help="How long it is valid.")] = 24,
) -> None:
    """On the node's machine: let an operator register this node's key. Works offline; hand over the file."""
    import time

    from cli.authorisations import Consent
    from cli.session import load_deployment
    from runtime.keystore import open_key

    suite = load_deployment(deployment)
    account = open_key(key_path(key.keystore), key.password_file, "node key")
    node, expiry = str(account.address), int(time.time()) + hours * 3600
    stakes = suite.address("Stakes")
    consent = Consent(chain_id=suite.chain_id, contract=stakes, node=node, operator=operator, expiry=expiry)
    consent.signed(account).write(out)
    emit(
        {"node": node, "operator": operator, "expiry": expiry, "file": str(out)},
        key.json,
        lambda: f"{out}: node {node} consents to operator {operator} until {clock(expiry)}",
    )


def register(
    stake: Annotated[int, tokens_option("--stake")],
    by: Paying,
    node_keystore: Annotated[
        Path | None, typer.Option(help="Key file of the node, which consents to its operator.")
    ] = None,
    node_password_file: Annotated[Path | None, typer.Option(help="Password of the node's key.")] = None,
    consent_file: Annotated[
        Path | None,
        typer.Option("--consent", help="The node's consent (muster node consent), if its key is elsewhere."),
    ] = None,
    approve: Annotated[
        bool, typer.Option("--approve", help="Allow Stakes with a transaction of its own, for tokens without permit.")
    ] = False,
) -> None:
    """Register a node under your operator key (--keystore) and stake for it, with the node key's consent."""
    session = by.open()
    consent = _node_consent(session, node_keystore, node_password_file, consent_file)
    title = f"register node {consent.node} and stake {show_tokens(stake)} tokens"
    stakes, base = session.suite.stakes, (consent.node, stake, consent.expiry, consent.signature)
    if approve:
        call = stakes.register_node(*base)
    else:
        permit = session.suite.token.sign_permit(session.account, stakes.address, stake, consent.expiry)
        call = stakes.register_node_with_permit(*base, permit)
    planned = PlannedTransaction(title, call)
    act(session, [planned], by, node=consent.node, operator=session.client.address, stake=stake)


def _node_consent(
    session: "Session", node_keystore: Path | None, node_password_file: Path | None, consent_file: Path | None
) -> "Consent":
    """The node's consent to this operator: from a file, or signed now with the node's key."""
    from cli.authorisations import Consent
    from protocol.encoding import load_document
    from runtime.keystore import open_key

    if (node_keystore is None) == (consent_file is None):
        raise ConfigError("the node's consent is missing or given twice", "pass --node-keystore or --consent")
    now = session.client.now()
    chain, stakes, operator = session.client.chain_id, session.suite.stakes.address, session.client.address
    if consent_file is not None:
        given = load_document(consent_file, Consent)
        expected = Consent(chain_id=chain, contract=stakes, node=given.node, operator=operator, expiry=now)
        given.check(expected, given.node, consent_file)
        return given
    account = open_key(key_path(node_keystore), node_password_file, "node key")
    node, expiry = str(account.address), now + _CONSENT_SECONDS
    return Consent(chain_id=chain, contract=stakes, node=node, operator=operator, expiry=expiry).signed(account)


def stake(node: NodeOption, amount: AmountOption, by: Paying) -> None:
    """Add stake to a node; in a pool, its limit of work in flight grows with it."""
    session = by.open()
    pool = session.suite.stakes.node_of(node).pool
    title = f"stake {show_tokens(amount)} tokens for node {node}"
    transactions = [PlannedTransaction(title, session.suite.stakes.deposit(node, amount))]
    if pool:
        refresh = session.suite.pools.refresh(pool, node)
        transactions.append(PlannedTransaction(f"raise its limit in pool {pool}", refresh, after=True))
    act(session, transactions, by, node=node, added=amount)


def withdraw(
    node: NodeOption,
    by: Acting,
    amount: Annotated[int | None, tokens_option("--amount", 'Tokens, such as "12.5"; all if missing.')] = None,
) -> None:
    """Take stake out, to the operator, once the node is in no pool and its unbonding time is over."""
    session = by.open()
    stakes = session.suite.stakes
    known, free = stakes.node_of(node), stakes.withdrawable(node)
    base_units = free if amount is None else amount
    if not free or base_units > free:
        raise ConfigError(f"{show_tokens(free)} tokens of {node} can be withdrawn now", _locked(known))
    planned = PlannedTransaction(f"withdraw {show_tokens(base_units)} tokens", stakes.withdraw(node, base_units))
    act(session, [planned], by, node=node, base_units=base_units)


def _locked(known: "NodeView") -> str:
    if known.pool:
        return f"first: muster node leave --pool {known.pool}"
    if known.frozen:
        return f"wait until {known.frozen} rejected files are final"
    return f"the rest unlocks at {clock(known.release_at)}" if known.stake else "there is no stake"
