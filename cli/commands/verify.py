"""`muster verify`: judge decided submissions again from chain and bucket, and say where the verdicts differ."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import EngineOptions, PoolOption, Reading
from cli.output import emit, table
from protocol.errors import ConfigError, IntegrityError, printable

if TYPE_CHECKING:
    from runtime.process import ProcessConfig
    from validator.replay import Opened, Replayed


def verify(
    engine: EngineOptions,
    look: Reading,
    orchestrator: Annotated[str, typer.Option(help="The pool's service, or another source of files.")],
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE]... | node ADDRESS | case NUMBER",
            help="Submissions, all decided ones if none is named; or `node ADDRESS`: all files of one node together; "
            "or `case NUMBER`: a node case.",
        ),
    ] = None,
    pool: PoolOption = 1,
    null_model: Annotated[
        Path | None, typer.Option(help="With `node`: a calibration of the pool's owner, if the pool names no law.")
    ] = None,
    published: Annotated[
        bool, typer.Option("--published", help="With `node` or `case`: by verdict documents, not our own replay.")
    ] = False,
    cache: Annotated[Path | None, typer.Option(help="Folder for weights and chain events.")] = None,
    allow_private_sources: Annotated[
        bool, typer.Option("--allow-private-sources", help="Follow URLs that others chose into private networks too.")
    ] = False,
) -> None:
    """Replay verdicts from public data alone; no key is needed. Exit code 1 if any outcome differs from ours, if the
    node's files together are not an honest node's, or if anything is wrong with the case."""
    from cli.observer import observer_config
    from protocol.files import user_cache

    home = cache or user_cache("verify")
    private = allow_private_sources
    config = observer_config(look, pool, orchestrator, engine.config(), home, home / "weights", private)
    asked = _asked(files or [], null_model, published)
    if not published:
        engine.set_threads()
    if asked.node or asked.case:
        raise typer.Exit(_told(config, asked, null_model, published, look))
    document = _replayed(config, asked.sequences)
    emit(document, look.json, lambda: _text(document))
    if document["differing"]:
        raise typer.Exit(1)


def _told(config: "ProcessConfig", asked: "_Asked", null_model: Path | None, published: bool, look: Reading) -> int:
    """Say what a node's files, or a case, come to; the exit code."""
    if asked.node:
        from cli.node_case import case_of, case_text

        found = case_of(config, asked.node, null_model, published)
        emit(found, look.json, lambda: case_text(found))
        return int(found["accused"])
    from cli.case_replay import replayed_case
    from cli.views.case_replay import case_replay_text

    replayed = replayed_case(config, asked.case, published)
    emit(replayed, look.json, lambda: case_replay_text(replayed))
    return int(not replayed["follows"])


def _replayed(config: "ProcessConfig", sequences: Sequence[int]) -> dict[str, Any]:
    """What a replay of the submissions found."""
    from validator.replay import replay

    typer.echo("loading the engine and the weights", err=True)
    rows = []
    for one in replay(config, sequences):
        rows.append(_row(one))
        typer.echo(f"file {rows[-1]['submission']}: {rows[-1]['ours']}, decided {rows[-1]['decided']}", err=True)
    return {
        "engine": config.engine.model_dump(),
        "replayed": rows,
        "differing": sum(not row["agrees"] for row in rows),
        "votes": sum(len(row["votes"]) for row in rows),
        "votes_differing": sum(not vote["agrees"] for row in rows for vote in row["votes"]),
        "largest_differences": _largest_differences(rows),
    }


@dataclass(frozen=True)
class _Asked:
    """What is to be replayed: a node's files, a case, or submissions (all of them if nothing is named)."""

    node: str = ""
    case: int = 0
    sequences: tuple[int, ...] = ()


def _asked(words: list[str], null_model: Path | None, published: bool) -> _Asked:
    """Raises ConfigError for words or options that do not go together."""
    kind = words[0] if words[:1] in (["node"], ["case"]) else ""
    if null_model and kind != "node":
        raise ConfigError(
            "--null-model is for a node", "write `muster verify node ADDRESS`; a case has its pool's null model"
        )
    if published and not kind:
        raise ConfigError("--published is for a node or a case", "write `muster verify node ADDRESS`, or `case NUMBER`")
    if kind == "node":
        return _Asked(node=_address(words[1:]))
    if kind == "case":
        if len(words) != 2 or not _is_number(words[1]) or not int(words[1]):
            raise ConfigError("`verify case` takes the number of one case", "see: muster case show")
        return _Asked(case=int(words[1]))
    if wrong := [word for word in words if not _is_number(word)]:
        raise ConfigError(
            f"{printable(wrong[0])!r} is not the number of a submission", "or write `node ADDRESS`, `case NUMBER`"
        )
    return _Asked(sequences=tuple(map(int, words)))


def _is_number(word: str) -> bool:
    return word.isdecimal() and len(word) <= 18


def _address(words: list[str]) -> str:
    from protocol.signing import checked_address

    try:
        (address,) = words
        return checked_address(address)
    except ValueError as error:
        what = f"`verify node` takes one address: {error}"
        raise ConfigError(what, "copy it again, with its checksum") from None


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
    from validator.replay import alike, differences

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
    from validator.replay import Difference, largest

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
    from validator.replay import Difference

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
