"""`muster verify`: judge decided submissions again from chain and bucket, and say where the verdicts differ."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import EngineOptions, PoolOption, Reading
from cli.output import emit, table
from protocol.errors import IntegrityError, printable

if TYPE_CHECKING:
    from validator.replay import Opened, Replayed


def verify(
    engine: EngineOptions,
    look: Reading,
    orchestrator: Annotated[str, typer.Option(help="The pool's service, or another source of files.")],
    sequences: Annotated[
        list[int] | None, typer.Argument(help="Submissions; all decided ones if none is named.")
    ] = None,
    pool: PoolOption = 1,
    cache: Annotated[Path | None, typer.Option(help="Folder for weights and chain events.")] = None,
    allow_private_sources: Annotated[
        bool, typer.Option("--allow-private-sources", help="Follow URLs that others chose into private networks too.")
    ] = False,
) -> None:
    """Replay verdicts from public data alone; no key is needed. Exit code 1 if any outcome differs from ours."""
    from cli.observer import observer_config
    from protocol.files import user_cache

    home = cache or user_cache("verify")
    private = allow_private_sources
    config = observer_config(look, pool, orchestrator, engine.config(), home, home / "weights", private)
    engine.set_threads()
    from validator.replay import replay

    typer.echo("loading the engine and the weights", err=True)
    rows = []
    for one in replay(config, sequences or ()):
        rows.append(_row(one))
        typer.echo(f"file {rows[-1]['submission']}: {rows[-1]['ours']}, decided {rows[-1]['decided']}", err=True)
    document = {
        "engine": config.engine.model_dump(),
        "replayed": rows,
        "differing": sum(not row["agrees"] for row in rows),
        "votes": sum(len(row["votes"]) for row in rows),
        "votes_differing": sum(not vote["agrees"] for row in rows for vote in row["votes"]),
        "largest_differences": _largest_differences(rows),
    }
    emit(document, look.json, lambda: _text(document))
    if document["differing"]:
        raise typer.Exit(1)


def _row(one: "Replayed") -> dict[str, Any]:
    return {
        "submission": one.submission.sequence,
        "node": one.submission.node,
        "step": one.submission.step,
        "decided": one.voted.label,
        "ours": one.verdict.code.label,
        "agrees": one.agrees,
        "votes": [_vote(one, opened) for opened in one.opened],
        "why": "; ".join(f"{finding.check}: {finding.note}" for finding in one.verdict.findings if finding.note),
        "now": one.submission.status.value,
    }


def _vote(one: "Replayed", opened: "Opened") -> dict[str, Any]:
    """A member's vote beside ours: with its published verdict, check by check and measurement by measurement."""
    from protocol.verdict import BallotDocument
    from validator.compare import differences
    from validator.replay import alike

    row: dict[str, Any] = {
        "seat": opened.seat,
        "code": opened.code.label,
        "agrees": alike(opened.code, one.verdict.code),
    }
    if opened.document is None:
        return row | {"note": "its verdict document is not published"}
    try:
        theirs = BallotDocument.parse(opened.document, opened.digest).on(one.submission.sequence)
    except IntegrityError as error:
        return row | {"note": error.what}
    found = [vars(difference) for difference in differences(theirs, one.verdict)]
    row |= {"engine": theirs.engine.get("name", "?")[:32], "differences": found}
    if not alike(theirs.code, opened.code):
        row["note"] = f"it voted {opened.code.label}, but its verdict document says {theirs.code.label}"
    return row


def _largest_differences(rows: list[dict[str, Any]]) -> dict[str, float]:
    """How far two engines' measurements lie apart at most, over all votes like ours whose verdict is published."""
    from validator.compare import Difference, largest

    like = [vote for row in rows for vote in row["votes"] if vote["agrees"]]
    return largest(Difference(**found) for vote in like for found in vote.get("differences", ()))


def _text(document: dict[str, Any]) -> str:
    rows, engine = document["replayed"], document["engine"]
    columns = ["submission", "node", "step", "decided", "ours", "agrees", "why"]
    lines = [table(columns, _cells(rows)), *_disagreements(rows)]
    lines += [
        f"{len(rows)} verdicts replayed with {engine['name']}, batch {engine['batch']}: {document['differing']} differ",
        f"{document['votes']} opened votes compared: {document['votes_differing']} differ",
    ]
    return "\n".join(lines)


def _disagreements(rows: list[dict[str, Any]]) -> list[str]:
    """Who came to another code, and by which check and measurements."""
    from validator.compare import Difference

    lines = []
    for row in rows:
        for vote in row["votes"]:
            if not vote["agrees"] or "voted" in vote.get("note", ""):
                found = [printable(str(Difference(**one))) for one in vote.get("differences", ())][:6]
                why = (
                    "; ".join([*([printable(vote["note"])] if "note" in vote else []), *found])
                    or "the figures are the same"
                )
                lines.append(f"{row['submission']}: seat {vote['seat']} voted {vote['code']}: {why}")
    return lines


def _cells(rows: list[dict[str, Any]]) -> list[list[str]]:
    return [
        [
            str(row["submission"]),
            row["node"][:10],
            str(row["step"]),
            row["decided"],
            row["ours"],
            "yes" if row["agrees"] else f"NO (now {row['now']})",
            row["why"][:80],
        ]
        for row in rows
    ]
