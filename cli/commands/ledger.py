"""`muster ledger`: a pool's accounts, from the chain's events alone."""

from typing import Annotated, Any

import typer

from cli.options import Commands, OutFileOption, PoolOption, Reading
from cli.output import emit, fields
from protocol.errors import ConfigError

app = Commands(help="A pool's accounts, from the chain's events alone.", no_args_is_help=True)


@app.command("verify")
def verify(look: Reading, pool: PoolOption = 1) -> None:
    """Compare the ledger by the events with contracts and token, to the last base unit. Exit code 1 if anything
    differs."""
    from orchestrator.ledger import reconcile

    session = look.open()
    session.pool(pool)
    found = reconcile(session.state(), pool, session.suite)
    assert found is not None, "the pool is on chain"
    emit(found.model_dump(), look.json, lambda: _verified(found.model_dump()))
    if found.findings:
        raise typer.Exit(1)


@app.command("export")
def export(
    look: Reading,
    out: OutFileOption,
    table: Annotated[str, typer.Option("--table", help="What to export. [see: docs/orchestrator.md]")] = "accounts",
    pool: PoolOption = 1,
) -> None:
    """Write a table: accounts, contributions, submissions, votes, slashes, disputes or payouts, as .csv, .json or
    .parquet. Amounts are base units."""
    from cli.table_files import write_table
    from orchestrator.ledger import NAMES, tables

    if table not in NAMES:
        raise ConfigError(f"--table: there is no table {table!r}", f"choose of {', '.join(NAMES)}")
    session = look.open()
    session.pool(pool)
    state = session.state()
    count = write_table(out, tables(state, pool, session.client.now())[table])
    document = {"table": table, "rows": count, "block": state.head, "out": str(out)}
    emit(document, look.json, lambda: f"{count} rows of {table} up to block {state.head} are in {out}")


def _verified(found: dict[str, Any]) -> str:
    said = {True: "as the events say", False: "DIFFERS"}
    lines = fields(
        {
            "block": found["block"],
            "accounts and payments": said[found["ledger_matches_chain"]],
            "escrow": "balanced" if found["escrow_balanced"] else "NOT BALANCED",
        }
    )
    return "\n".join([lines, *found["findings"]])
