"""`muster challenge`: node challenges, for what several files of a node show together."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import Commands, NodeOption, PoolPaying, Reading
from cli.output import clock, emit, fields, table
from cli.plan import PlannedTransaction, act
from protocol.encoding import show_tokens
from protocol.errors import ConfigError

if TYPE_CHECKING:
    from chain.indexer.records import Accusation, Submission
    from chain.indexer.state import State

_UNASKED = 16
"""Files of a challenge whose first file nobody named: each one more costs."""

app = Commands(help="Challenge a node by several of its files before a jury.", no_args_is_help=True)


@app.command("open", "muster challenge open --pool 1 --node ADDRESS --first 17 --dry-run")
def open_challenge(
    node: NodeOption,
    by: PoolPaying,
    first: Annotated[
        int | None, typer.Option(min=0, help="The first file to name; the sixteenth newest if missing.")
    ] = None,
    last: Annotated[
        int | None, typer.Option(min=0, help="The last file to name; the newest final one if missing.")
    ] = None,
    evidence: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="What you found, e.g. `muster verify node … --json`: its hash."),
    ] = None,
) -> None:
    """Challenge a node by a run of its files before a jury.

    The bond, which grows with the files (256 at most), comes back if the jury agrees, with a twentieth of the stake;
    else it is lost. `muster verify node ADDRESS` says which run to name."""
    import hashlib

    from cli.pool_document import refuse_no_null_model

    session = by.open()
    pool, state = by.number(session), session.state()
    if (pool, node) not in state.accounts:
        raise ConfigError(f"{node} is no node of pool {pool}", "check --node and --pool")
    files = named_run(state.submissions_of(pool, node), session.client.now(), first, last)
    if not files:
        raise ConfigError(
            f"{node} has no accepted and final files there", "see: muster node status, and --first, --last"
        )
    said = hashlib.sha256(evidence.read_bytes()).digest() if evidence else bytes(32)
    refuse_no_null_model(state.pools[pool])
    call = session.suite.node_challenges.open(files, said)
    sequences = [file.sequence for file in files]
    title = (
        f"challenge node {node} by {len(files)} files, {sequences[0]} to {sequences[-1]}, with a bond of "
        f"{show_tokens(call.base_units)} tokens"
    )

    def outcome(receipts: list[Any]) -> tuple[dict[str, Any], str]:
        number = call.result(receipts[0])
        return {"challenge": number}, f"challenge {number}; its jury votes now: muster challenge show {number}"

    act(
        session, [PlannedTransaction(title, call)], by, outcome,
        pool=pool, node=node, files=sequences, bond=call.base_units, evidence=said.hex(),
    )  # fmt: skip


@app.command("show", "muster challenge show 3")
def show(
    look: Reading,
    number: Annotated[
        int | None, typer.Argument(metavar="[CHALLENGE]", min=1, help="One challenge; all if missing.")
    ] = None,
) -> None:
    """Show node challenges: files, jury, votes, what became of stake and bond."""
    state = look.open().state()
    if number is not None and number not in state.cases:
        raise ConfigError(f"there is no challenge {number}", "muster challenge show lists all")
    if number is None:
        rows = [_row(state, case) for case in state.cases.values()]
        emit({"challenges": rows}, look.json, lambda: _list(rows))
        return
    one = _row(state, state.cases[number])
    emit(one, look.json, lambda: fields({name: _shown(name, value) for name, value in one.items()}))


def named_run(known: "list[Submission]", now: int, first: int | None, last: int | None) -> "list[Submission]":
    """Of the `known` files of a node those that a challenge names at chain time `now`, between two that may be asked
    for. Raises ConfigError where these are more than it can name, or not all of them final."""
    from validator.challenges import challengeable

    files = newest(challengeable(known, now, first or 0, last if last is not None else (1 << 28) - 1), first)
    if files and last is not None:
        refuse_cut(files, known, last)
    return files


def newest(files: "list[Submission]", first: int | None) -> "list[Submission]":
    """The run that a challenge names of those that it may; the newest `_UNASKED` where no `first` was asked for. Raises
    ConfigError where more files follow it than a case can name."""
    from chain.contracts import MOST_FILES

    if first is None:
        return files[-_UNASKED:]
    if len(files) > MOST_FILES:
        raise ConfigError(
            f"{len(files)} files from {first} on are final, and a challenge names {MOST_FILES} at most",
            f"leave --first out, or name an end: --last {files[MOST_FILES - 1].sequence}",
        )
    return files


def refuse_cut(files: "list[Submission]", known: "list[Submission]", last: int) -> None:
    """Raises ConfigError where the run of `files` ends before `last`, which was asked for, because one of the `known`
    files up to there is not final yet: what a shorter run shows may be too little, and cost the bond."""
    from protocol.verdict import Code

    end, still_open = files[-1].sequence, (Code.NONE, Code.DISPUTED)
    for one in known:
        if end < one.sequence <= last and (Code(one.code).is_accept or one.code in still_open):
            raise ConfigError(
                f"the run would end at {end}, because not all files up to {one.sequence} are final yet",
                f"wait until they are, or name that end: --last {end}",
            )


def _row(state: "State", case: "Accusation") -> dict[str, Any]:
    from protocol.verdict import Code

    trial = state.trials[case.trial]
    return {
        "challenge": case.case,
        "pool": case.pool,
        "node": case.node,
        "accuser": case.accuser,
        "opened": case.time,
        "files": list(case.sequences),
        "trial": case.trial,
        "jury": list(trial.seats),
        "votes": {str(trial.seats[juror]): Code(code).label for juror, (code, _) in sorted(trial.reveals.items())},
        "outcome": case.outcome.name.lower(),
        "code": Code(case.code).label if case.code else "",
        "bond": case.bond,
        "back": case.back,
        "slashed": case.slashed,
    }


def _list(rows: list[dict[str, Any]]) -> str:
    columns = ["challenge", "pool", "node", "files", "outcome", "slashed"]
    cells = [
        [
            str(row["challenge"]),
            str(row["pool"]),
            row["node"],
            str(len(row["files"])),
            row["outcome"],
            _shown("slashed", row["slashed"]),
        ]
        for row in rows
    ]
    return table(columns, cells) if rows else "no node was ever challenged"


def _shown(name: str, value: Any) -> str:
    """One of a case's facts, for people."""
    if name in ("bond", "back", "slashed"):
        return f"{show_tokens(value)} tokens"
    if name == "opened":
        return clock(value)
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "not drawn yet"
    return "; ".join(f"seat {seat} {code}" for seat, code in value.items()) if isinstance(value, dict) else str(value)
