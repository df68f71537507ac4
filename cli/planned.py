"""Transactions as a person meets them: announced, simulated or confirmed, sent one after the other, reported."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from cli.amounts import show_tokens
from cli.output import emit
from protocol.errors import ConfigError

if TYPE_CHECKING:
    from chain.sender import Call, Receipt
    from cli.session import Session


@dataclass(frozen=True)
class PlannedTransaction:
    """One transaction. `grains`: tokens that leave the sender's account. `ask`: a person has to agree first, because
    money moves out or because it cannot be undone. `after`: it only works once the moves before it are mined, so a dry
    run cannot simulate it."""

    title: str
    call: "Call"
    grains: int = 0
    ask: bool = False
    after: bool = False

    def words(self) -> str:
        return f"{self.title} ({self.call.label})"


@dataclass(frozen=True)
class Mode:
    """How a command was asked to act."""

    dry_run: bool = False
    yes: bool = False
    json: bool = False


def act(session: "Session", transactions: Sequence[PlannedTransaction], mode: Mode, **facts: Any) -> list["Receipt"]:
    """Send all moves in order, or in a dry run only simulate them; print what was done, with `facts` in the document.

    Raises ConfigError when the tokens do not suffice or nobody agreed, ContractError when a move is refused. A failure
    leaves the earlier moves done; the command can be run again.
    """
    receipts = send(session, transactions, mode)
    if mode.dry_run:
        emit(
            {"dry_run": True, "plan": [_planned(planned) for planned in transactions], **facts},
            mode.json,
            lambda: _plan(transactions),
        )
    elif mode.json:
        emit({"sent": sent(transactions, receipts), **facts}, True, str)
    return receipts


def send(session: "Session", transactions: Sequence[PlannedTransaction], mode: Mode) -> list["Receipt"]:
    """As `act`, without the document at the end: for commands that have more to say."""
    _check_tokens(session, transactions)
    if mode.dry_run:
        for planned in transactions:
            if not planned.after:
                session.client.simulate(planned.call)
        return []
    _agree(session, transactions, mode)
    receipts = []
    for planned in transactions:
        receipt = session.client.send(planned.call)
        receipts.append(receipt)
        if not mode.json:
            typer.echo(f"{planned.words()}: block {receipt.block}, gas {receipt.gas_used}, {receipt.tx_hash}")
    return receipts


def sent(transactions: Sequence[PlannedTransaction], receipts: Sequence["Receipt"]) -> list[dict[str, Any]]:
    """The moves and what became of them, for a document."""
    return [
        {"title": m.title, "call": m.call.label, "tx": r.tx_hash, "block": r.block, "gas": r.gas_used, "fee_wei": r.fee}
        for m, r in zip(transactions, receipts, strict=True)
    ]


def _check_tokens(session: "Session", transactions: Sequence[PlannedTransaction]) -> None:
    need = sum(planned.grains for planned in transactions)
    have = session.suite.token.balance_of(session.address) if need else 0
    if have < need:
        raise ConfigError(
            f"{session.address} has {show_tokens(have)} tokens and needs {show_tokens(need)}",
            "get more; on a test network: muster keys faucet",
        )


def _planned(planned: PlannedTransaction) -> dict[str, Any]:
    result = "needs the moves before it" if planned.after else "would succeed"
    return {"title": planned.title, "call": planned.call.label, "grains": planned.grains, "result": result}


def _plan(transactions: Sequence[PlannedTransaction]) -> str:
    lines = [f"would send: {planned.words()}: {_planned(planned)['result']}" for planned in transactions]
    return "\n".join([*lines, "dry run: nothing was sent"])


def _agree(session: "Session", transactions: Sequence[PlannedTransaction], mode: Mode) -> None:
    if mode.yes or not any(planned.ask for planned in transactions):
        return
    if not sys.stdin.isatty():
        raise ConfigError("this needs somebody's consent and there is no terminal to ask", "pass --yes, or --dry-run")
    typer.echo(f"From {session.address} on chain {session.client.chain_id}:", err=True)
    for planned in transactions:
        typer.echo(f"  {planned.title}", err=True)
    if not typer.confirm("Go ahead?", err=True):
        raise ConfigError("not agreed to", "nothing was sent")
