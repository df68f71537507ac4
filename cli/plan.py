"""Transactions as a person meets them: announced, simulated or confirmed, sent one after the other, reported."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import typer

from cli.options import Acting, Paying, PoolActing
from cli.output import emit
from protocol.encoding import show_tokens
from protocol.errors import ConfigError

if TYPE_CHECKING:
    from chain.contracts import ContractCall
    from chain.suite import Suite
    from chain.transactions import Receipt
    from cli.session import Session


@dataclass(frozen=True)
class PlannedTransaction:
    """One transaction. `after`: it only works once those before it are mined; no dry run can simulate it."""

    title: str
    call: "ContractCall[Any]"
    after: bool = False

    @property
    def words(self) -> str:
        return f"{self.title} ({self.call.label})"


# From the receipts of a command's transactions: more facts for the document, and a last line of text
Outcome = Callable[[list["Receipt"]], tuple[dict[str, Any], str]]


def act(
    session: "Session",
    transactions: Sequence[PlannedTransaction],
    by: Acting,
    outcome: Outcome | None = None,
    **facts: Any,
) -> None:
    """Send all in order, after the approval that they need, or in a dry run only simulate them; print what was done,
    with `facts` in the document. A failure leaves the earlier ones done; the command can be run again. Raises
    ConfigError for too few tokens or no consent, ContractError when a transaction is refused."""
    need = sum(planned.call.base_units for planned in transactions)
    have = session.suite.token.balance_of(session.client.address) if need else 0
    if have < need:
        raise ConfigError(
            f"{session.client.address} has {show_tokens(have)} tokens and needs {show_tokens(need)}",
            "get more: on a test network who governs it mints (muster governance propose --mint ADDRESS=TOKENS)",
        )
    plan = _with_needed(session, transactions)
    if by.dry_run:
        _simulate(session, plan, by, facts)
        return
    if isinstance(by, Paying) and not by.yes:
        titles = "".join(f"\n  {planned.title}" for planned in plan)
        confirm(f"From {session.client.address} on chain {session.client.chain_id}:{titles}\nGo ahead?")
    receipts = list["Receipt"]()
    for planned in plan:
        receipt = session.client.send(planned.call)
        receipts.append(receipt)
        if not by.json:
            typer.echo(f"{planned.words}: block {receipt.block}, gas {receipt.gas_used}, {receipt.tx_hash}")
    more, text = outcome(receipts[-len(transactions) :]) if outcome else ({}, "")
    if by.json:
        sent = [
            {"title": p.title, "call": p.call.label}
            | {"tx": r.tx_hash, "block": r.block, "gas": r.gas_used, "fee_wei": r.fee}
            for p, r in zip(plan, receipts, strict=True)
        ]
        emit({"sent": sent, **facts, **more}, True)
    elif text:
        typer.echo(text)


def act_on_pool(
    by: PoolActing, transaction: "Callable[[Suite, int], tuple[str, ContractCall[Any]]]", **facts: Any
) -> None:
    """Send one transaction, made from the suite and the number of the pool that is meant. Raises what `act` raises."""
    session = by.open()
    pool = by.number(session)
    act(session, [PlannedTransaction(*transaction(session.suite, pool))], by, pool=pool, **facts)


def _simulate(session: "Session", plan: list[PlannedTransaction], by: Acting, facts: dict[str, Any]) -> None:
    """Say what each transaction would do and cost. What only works after another one has no price yet."""
    gas = [None if planned.after else session.client.estimate(planned.call) for planned in plan]
    price, total, base_units = session.client.gas_price(), sum(filter(None, gas)), sum(p.call.base_units for p in plan)
    rows, lines = list[dict[str, Any]](), list[str]()
    for p, used in zip(plan, gas, strict=True):
        forecast = "needs the transactions before it" if p.after else "would succeed"
        about = {"title": p.title, "call": p.call.label, "base_units": p.call.base_units}
        rows.append({**about, "gas": used, "result": forecast})
        lines.append(f"would send: {p.words}: {forecast}" + (f", gas {used:,}" if used else ""))
    more = " and what the later ones use" if None in gas else ""
    cost = (
        f"it would cost {show_tokens(base_units)} tokens and gas {total:,}{more}: {total * price / 10**18:.9f} ETH now"
    )
    document = {"dry_run": True, "plan": rows, "base_units": base_units, "gas": total, "fee_wei": total * price}
    emit(document | facts, by.json, lambda: "\n".join([*lines, cost, "dry run: nothing was sent"]))


def confirm(question: str) -> None:
    """Ask on the terminal. Raises ConfigError unless somebody there agrees."""
    if not sys.stdin.isatty():
        raise ConfigError("this has to be confirmed and there is no terminal to ask", "pass --yes, or --dry-run")
    if not typer.confirm(question, err=True):
        raise ConfigError("not confirmed", "nothing was sent")


def _with_needed(session: "Session", transactions: Sequence[PlannedTransaction]) -> list[PlannedTransaction]:
    """The transactions, after those that must come before them, and one that lets their contract (a command pays one at
    most) take all that they need."""
    before = [call for planned in transactions for call in planned.call.before]
    needed = [PlannedTransaction("give the file a word of its own", call) for call in before]
    later = [replace(planned, after=planned.after or bool(planned.call.before)) for planned in transactions]
    taking = [planned.call for planned in transactions if planned.call.approval]
    base_units = sum(call.base_units for call in taking)
    approval = session.suite.token.approval(taking[0].to, base_units) if base_units else None
    if approval is None:
        return [*needed, *later]
    first = PlannedTransaction(f"let {taking[0].label.split('.')[0]} take that much", approval)
    return [*needed, first, *(replace(planned, after=planned.after or planned.call in taking) for planned in later)]
