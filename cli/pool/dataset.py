"""`muster dataset`: the rollouts that a pool accepted as a data set, and whether such a data set is true."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from cli.options import Commands, PoolReading, Reading, address_option
from cli.output import emit, fields, table
from protocol.errors import ConfigError, IntegrityError

if TYPE_CHECKING:
    from cli.session import Session
    from dataset.export import PoolOnChain
    from dataset.verify import DatasetFindings

app = Commands(help="A pool's verified rollouts as a data set.", no_args_is_help=True)
_SECONDS = 60.0


@app.command("export", "muster dataset export --pool https://pool.example --out rollouts --licence cc-by-4.0")
def export(
    out: Annotated[Path, Option(help="Folder to write; it must not exist.")],
    look: PoolReading,
    licence: Annotated[str, Option(help="Licence you offer the data under, such as cc-by-4.0.")] = "unknown",
    confirmations: Annotated[int, Option(min=0, max=1000, help="Blocks on top of the last one that counts.")] = 2,
    sign_with: Annotated[Path | None, Option(help="Key file that signs the data set.")] = None,
    sign_password_file: Annotated[Path | None, Option(help="File (mode 0600) with its password.")] = None,
) -> None:
    """Write every rollout that was accepted for good as a folder that anybody can verify.

    Rows hold scores, texts and what ties them to the chain. The folder is complete or absent: run it again after an
    interruption."""
    from cli.pool.document import service_objects
    from dataset.export import export as write
    from runtime.keystore import open_key

    session = look.open()
    account = open_key(sign_with, sign_password_file) if sign_with else None
    source = _source(session, look.number(session), confirmations)
    with service_objects(look.service(session), _SECONDS) as objects:
        stored = write(source, objects, out, licence, account, say=lambda line: typer.echo(line, err=True))
    document = stored.dataset
    shown = {"out": str(out), "signer": stored.signer or None, "block": document.as_of.block}
    shown |= document.totals.model_dump(exclude={"environments"}) | {"files": len(document.files)}
    emit(shown, look.json, lambda: f"{fields(shown)}\nnext: muster dataset verify {out}")


@app.command("verify", "muster dataset verify rollouts --deployment deployment.json --rpc https://rpc.example")
def verify(
    folder: Annotated[Path, Argument(help="The data set's folder.", exists=True, file_okay=False)],
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
        emit({"sound": False, "wrong": 1, "findings": [what]}, look.json, lambda: f"WRONG  {what}", False)
        return
    session = look.open()
    source = _source(session, stored.dataset.pool, 0)
    outcome = compare(folder, stored, source, session.client.block(stored.dataset.as_of.block))
    if signer is not None and stored.signer != signer:
        outcome.findings.add("signer", f"it is signed by {stored.signer or 'nobody'}, not by {signer}")
    shown: dict[str, Any] = {
        "sound": outcome.sound,
        "rows": outcome.rows,
        "signer": outcome.signer or None,
        "newer_submissions": outcome.newer,
        "wrong": outcome.findings.count,
        "findings": outcome.findings.messages,
    }
    since = f"; {outcome.newer} submissions were accepted for good since" if outcome.newer else ""
    about = f"of pool {outcome.document.pool} as of block {outcome.document.as_of.block}{since}"
    lines = [*_wrong(outcome.findings), f"{outcome.rows} rows checked, {about}"]
    lines += ["every row is on chain"] * outcome.sound
    emit(shown, look.json, lambda: "\n".join(lines), outcome.sound)


def check_curriculum(step: int, look: PoolReading) -> None:
    """Recompute a policy step's curriculum mask from chain and bucket. Exit with 1 if the published one differs."""
    from cli.pool.document import service_objects
    from dataset.curriculum import check_mask

    session = look.open()
    source = _source(session, look.number(session), 0)
    with service_objects(look.service(session), _SECONDS) as objects:
        checked = check_mask(source, objects, step)
    findings = checked.findings
    shown = {
        "sound": not findings.count,
        "step": step,
        "files": checked.files,
        "left_out": list(checked.mask.left_out),
        "environments": {
            name: {"problems": problems, "hard": hard, "easy": easy} for name, problems, hard, easy in checked.rows()
        },
        "wrong": findings.count,
        "findings": findings.messages,
    }
    lines = [table(("environment", "problems", "masked as too hard", "as too easy"), checked.rows())]
    left_out = f", without {len(checked.mask.left_out)} that the owner could not have" if checked.mask.left_out else ""
    lines += [*_wrong(findings), f"counted from {checked.files} files{left_out}"]
    lines += [] if findings.count else ["the mask is the one that follows from chain and bucket"]
    emit(shown, look.json, lambda: "\n".join(lines), not findings.count)


def _wrong(findings: "DatasetFindings") -> list[str]:
    lines = [f"WRONG  {message}" for message in findings.messages]
    more = findings.count - len(lines)
    return [*lines, f"{more} more things are wrong"] if more else lines


def _source(session: "Session", pool: int, confirmations: int) -> "PoolOnChain":
    """Read the chain as it is now, up to `confirmations` blocks ago."""
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
