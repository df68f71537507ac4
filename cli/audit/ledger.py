"""`muster ledger`: a pool's accounts by the chain's events, checked against the contracts or written as a table."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from cli.options import PoolReading
from cli.output import emit, fields
from protocol.errors import ConfigError
from protocol.files import explained


def ledger(
    look: PoolReading,
    out: Annotated[Path | None, Option(help="Write a table to this .csv or .json instead.")] = None,
    table: Annotated[
        str,
        Option(
            help="With --out: accounts, contributions, submissions, votes, slashes, disputes or payouts, in base units."
        ),
    ] = "accounts",
) -> None:
    """Compare a pool's ledger with contracts and token to the last base unit, or write one of its tables.

    Exit code 1 if anything differs."""
    from orchestrator.ledger import NAMES, reconcile, tables

    if table not in NAMES:
        raise ConfigError(f"--table: there is no table {table!r}", f"choose of {', '.join(NAMES)}")
    session = look.open()
    pool, state = look.number(session), session.state()
    if out is not None:
        count = write_table(out, list(tables(state, pool, session.client.now())[table]))
        document = {"table": table, "rows": count, "block": state.head, "out": str(out)}
        emit(document, look.json, lambda: f"{count} rows of {table} up to block {state.head} are in {out}")
        return
    compared = reconcile(state, pool, session.suite)
    assert compared is not None, "the pool is on chain"
    rows = {
        "block": compared.block,
        "accounts and payments": "as the events say" if compared.ledger_matches_chain else "DIFFERS",
        "escrow": "balanced" if compared.escrow_balanced else "NOT BALANCED",
    }
    text = "\n".join([fields(rows), *compared.findings])
    emit(compared.model_dump(), look.json, lambda: text, not compared.findings)


def write_table(path: Path, rows: Sequence[Mapping[str, Any]]) -> int:
    """Write rows of one shape as the file's ending says; return how many. Raises ConfigError for another ending."""
    if path.suffix not in (".csv", ".json"):
        raise ConfigError(f"{path.name} names no format", "end it in .csv or .json")
    with explained(f"write {path}", "check the folder"):
        if path.suffix == ".json":
            path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        else:
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, list(rows[0]) if rows else [])
                writer.writeheader()
                writer.writerows(rows)
    return len(rows)
