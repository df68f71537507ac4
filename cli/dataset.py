"""`muster dataset`: the rollouts that a pool accepted as a data set, and whether such a data set is true."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import Commands, PoolReading, Reading, address_option
from cli.output import clock, emit, fields, table
from protocol.errors import ConfigError, IntegrityError

if TYPE_CHECKING:
    from cli.session import Session
    from dataset.document import DatasetDocument, Format
    from dataset.export import PoolOnChain

app = Commands(help="A pool's verified rollouts as a data set.", no_args_is_help=True)
_SECONDS = 60.0


class FormatOption(StrEnum):
    """How rows are stored."""

    PARQUET = "parquet"
    JSONL = "jsonl"
    BOTH = "both"


@app.command("export", "muster dataset export --pool https://pool.example --out rollouts --licence cc-by-4.0")
def export(
    out: Annotated[Path, typer.Option(help="Folder to write; it must not exist.")],
    look: PoolReading,
    format: Annotated[FormatOption, typer.Option(help="How rows are stored.")] = FormatOption.BOTH,
    licence: Annotated[str, typer.Option(help="Licence you offer the data under, such as cc-by-4.0.")] = "unknown",
    confirmations: Annotated[int, typer.Option(min=0, max=1000, help="Blocks on top of the last one that counts.")] = 2,
    sign_with: Annotated[Path | None, typer.Option(help="Key file that signs the data set.")] = None,
    sign_password_file: Annotated[Path | None, typer.Option(help="File (mode 0600) with its password.")] = None,
) -> None:
    """Write every rollout that was accepted for good as a folder that anybody can verify.

    Rows hold scores, texts and what ties them to the chain. The folder is complete or absent: run it again after an
    interruption."""
    from dataset.export import ExportOptions
    from dataset.export import export as write
    from protocol.api.endpoints import OBJECTS
    from runtime.keystore import open_key
    from storage.transfers import HttpObjects

    session = look.open()
    pool, orchestrator = look.number(session), look.service(session)
    formats: tuple[Format, ...] = ("parquet", "jsonl") if format is FormatOption.BOTH else (format.value,)  # type: ignore[assignment]
    account = open_key(sign_with, sign_password_file) if sign_with else None
    options = ExportOptions(formats=formats, licence=licence, account=account)
    source = _source(session, pool, confirmations)
    # Whoever asks sees the answer and nobody else does, so the service may point to wherever its bucket is.
    objects = HttpObjects([orchestrator.rstrip("/") + OBJECTS], timeout=_SECONDS, allow_private=True)
    try:
        stored = write(source, objects, out, options, lambda line: typer.echo(line, err=True))
    finally:
        objects.close()
    document = stored.dataset
    shown = {"out": str(out), "signer": stored.signer or None, "block": document.as_of.block}
    shown |= document.totals.model_dump() | {"files": [one.model_dump() for one in document.files]}
    emit(shown, look.json, lambda: _text(document, out, stored.signer))


@app.command("verify", "muster dataset verify rollouts --deployment deployment.json --rpc https://rpc.example")
def verify(
    folder: Annotated[Path, typer.Argument(help="The data set's folder.", exists=True, file_okay=False)],
    look: Reading,
    signer: Annotated[
        str | None,
        address_option("--signer", "Address that must have signed it; without one anybody may have, or nobody."),
    ] = None,
) -> None:
    """Compare every row of a data set with the chain; needs no key and no bucket.

    Exit code 1 if anything was altered, left out, added or moved."""
    from dataset.verify import load
    from dataset.verify import verify as compare

    try:
        stored = load(folder)
    except IntegrityError as error:
        what = error.what
        emit({"sound": False, "wrong": 1, "findings": [what]}, look.json, lambda: f"WRONG  {what}")
        raise typer.Exit(1) from None
    session = look.open()
    source = _source(session, stored.dataset.pool, 0)
    made = compare(folder, stored, source, session.client.block(stored.dataset.as_of.block))
    if signer is not None and stored.signer != signer:
        made.findings.add("signer", f"it is signed by {stored.signer or 'nobody'}, not by {signer}")
    shown: dict[str, Any] = {
        "sound": made.sound,
        "rows": made.rows,
        "signer": made.signer or None,
        "newer_submissions": made.newer,
        "wrong": made.findings.count,
        "findings": made.findings.messages,
    }
    lines = [f"WRONG  {one}" for one in made.findings.messages]
    if made.findings.count > len(lines):
        lines.append(f"{made.findings.count - len(lines)} more things are wrong")
    lines += [_summary(made.document, made.rows, made.newer)]
    emit(shown, look.json, lambda: "\n".join([*lines, "every row is on chain"] if made.sound else lines))
    if not made.sound:
        raise typer.Exit(1)


def check_curriculum(step: int, look: PoolReading) -> None:
    """Recompute a policy step's curriculum mask from chain and bucket, and compare it with the published one. Exits
    with 1 if they differ."""
    from dataset.curriculum import check_mask
    from protocol.api.endpoints import OBJECTS
    from storage.transfers import HttpObjects

    session = look.open()
    pool, orchestrator = look.number(session), look.service(session)
    objects = HttpObjects([orchestrator.rstrip("/") + OBJECTS], timeout=_SECONDS, allow_private=True)
    try:
        found = check_mask(_source(session, pool, 0), objects, step)
    finally:
        objects.close()
    findings = found.findings
    shown = {
        "sound": not findings.count,
        "step": step,
        "files": found.files,
        "left_out": list(found.mask.left_out),
        "environments": {
            name: {"problems": problems, "hard": hard, "easy": easy} for name, problems, hard, easy in found.rows()
        },
        "wrong": findings.count,
        "findings": findings.messages,
    }
    lines = [table(("environment", "problems", "masked as too hard", "as too easy"), found.rows())]
    lines += [f"WRONG  {one}" for one in findings.messages]
    if findings.count > len(findings.messages):
        lines.append(f"{findings.count - len(findings.messages)} more things are wrong")
    lines.append(f"counted from {found.files} files" + (f", without {len(found.mask.left_out)} that the owner could "
                 "not have" if found.mask.left_out else ""))  # fmt: skip
    lines += [] if findings.count else ["the mask is the one that follows from chain and bucket"]
    emit(shown, look.json, lambda: "\n".join(lines))
    if findings.count:
        raise typer.Exit(1)


def _source(session: "Session", pool: int, confirmations: int) -> "PoolOnChain":
    """The chain as it is now, up to `confirmations` blocks ago."""
    from dataset.export import PoolOnChain
    from protocol.identity import PoolId

    state, deployment = session.state(), session.deployment
    number = max(0, state.head - confirmations)
    block = session.client.block(number)
    if block is None:
        raise ConfigError(f"the chain has no block {number}", "wait until the RPC endpoint has it, or name another")
    contracts = {name: placed.address for name, placed in deployment.contracts.items()}
    where = PoolId(deployment.chain_id, session.suite.pools.address, pool)
    return PoolOnChain(state, where, deployment.genesis, contracts, block)


def _text(document: "DatasetDocument", out: Path, signer: str) -> str:
    totals = document.totals
    return fields(
        {
            "data set": out,
            "rows": f"{totals.rows}, of {totals.problems} problems, from {totals.submissions} files of "
            f"{totals.nodes} nodes",
            "tokens": f"{totals.prompt_tokens} prompt, {totals.output_tokens} output",
            "task reward": f"{totals.task_reward_mean:.4f} on average",
            "as of": f"block {document.as_of.block}, {clock(document.as_of.time)}",
            "signed by": signer or "nobody (--sign-with)",
            "next": f"muster dataset verify {out}",
        }
    )


def _summary(document: "DatasetDocument", rows: int, newer: int) -> str:
    since = f"; {newer} submissions were accepted for good since" if newer else ""
    return f"{rows} rows looked at, of pool {document.pool} as of block {document.as_of.block}{since}"
