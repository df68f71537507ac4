"""`muster challenge`: node challenges, for what several files of a node show together."""

from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from cli.options import Commands, NodeOption, Paying, PoolPaying, Reading
from cli.output import emit, table
from cli.plan import PlannedTransaction, act
from protocol.encoding import show_tokens
from protocol.errors import ConfigError
from protocol.verdict import Code, challenge_label

if TYPE_CHECKING:
    from chain.indexer.records import NodeChallenge, Submission
    from chain.indexer.state import State

_UNASKED = 16  # files of a challenge whose first file nobody named: each one more costs

app = Commands(help="Challenge a node by several of its files before a jury.", no_args_is_help=True)


@app.command("open", "muster challenge open --pool 1 --node ADDRESS --first 17 --dry-run")
def open_challenge(
    node: NodeOption,
    by: PoolPaying,
    first: Annotated[int | None, Option(min=0, help="The first file to name; the sixteenth newest if missing.")] = None,
    last: Annotated[int | None, Option(min=0, help="The last file to name; the newest final one if missing.")] = None,
) -> None:
    """Challenge a node by a run of its files before a jury.

    The bond, which grows with the files (256 at most), comes back if the jury agrees. A node that computes otherwise
    than calibrated leaves the pool; a cheat is slashed too, of which you get a twentieth, at most the bond. If the jury
    disagrees, the bond is lost. `muster verify node ADDRESS` says which run to name."""
    from cli.pool.document import refuse_no_evidence

    session = by.open()
    pool, state = by.number(session), session.state()
    if (pool, node) not in state.accounts:
        raise ConfigError(f"{node} is no node of pool {pool}", "check --node and --pool")
    files = named_run(state.submissions_of(pool, node), session.client.now(), first, last)
    if not files:
        raise ConfigError(
            f"{node} has no accepted and final files there", "see: muster node status, and --first, --last"
        )
    refuse_no_evidence(state.pools[pool])
    call = session.suite.node_challenges.open(files, bytes(32))
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
        pool=pool, node=node, files=sequences, bond=call.base_units,
    )  # fmt: skip


@app.command("appeal", "muster challenge appeal 3 --dry-run")
def appeal(number: Annotated[int, Argument(metavar="CHALLENGE", min=1)], by: Paying) -> None:
    """Bring the first jury's verdict on a challenge before a second jury; the deposit returns to who is right."""
    session = by.open()
    challenge = _challenge(session.state(), number)
    call = session.suite.juries.appeal(challenge.trials[0])
    title = f"appeal against the verdict on challenge {number} with a deposit of {show_tokens(call.base_units)} tokens"
    act(session, [PlannedTransaction(title, call)], by, challenge=number, deposit=call.base_units)


@app.command("show", "muster challenge show 3")
def show(
    look: Reading,
    number: Annotated[int | None, Argument(metavar="[CHALLENGE]", min=1, help="One challenge; all if missing.")] = None,
) -> None:
    """Show node challenges: files, jury, votes, what became of stake and bond."""
    state = look.open().state()
    if number is not None:
        emit(_row(state, _challenge(state, number)), look.json)
        return
    rows = [_row(state, challenge) for challenge in state.challenges.values()]
    names = ["challenge", "pool", "node", "outcome", "slashed"]
    cells = [[str(row[name]) for name in names[:-1]] + [f"{show_tokens(row['slashed'])} tokens"] for row in rows]
    emit({"challenges": rows}, look.json, lambda: table(names, cells, "no node was ever challenged"))


def named_run(known: "list[Submission]", now: int, first: int | None, last: int | None) -> "list[Submission]":
    """Return those of a node's `known` files from `first` to `last` that are accepted and final at chain time `now`, or
    the newest few. Raises ConfigError where a challenge cannot name so many, or one up to `last` is not final yet: what
    a shorter run shows may be too little, and cost the bond."""
    from chain.contracts import MOST_FILES
    from validator.challenges import challengeable

    files = challengeable(known, now, first or 0, last if last is not None else (1 << 28) - 1)
    if first is None:
        files = files[-_UNASKED:]
    if len(files) > MOST_FILES:
        what = f"{len(files)} files from {first} on are final, and a challenge names {MOST_FILES} at most"
        raise ConfigError(what, f"leave --first out, or name an end: --last {files[MOST_FILES - 1].sequence}")
    end = files[-1].sequence if files else 0
    for submission in known if files and last is not None else ():
        pending = Code(submission.code).is_accept or submission.code in (Code.NONE, Code.DISPUTED)
        if end < submission.sequence <= (last or 0) and pending:
            what = f"the run would end at {end}, because not all files up to {submission.sequence} are final yet"
            raise ConfigError(what, f"wait until they are, or name that end: --last {end}")
    return files


def _challenge(state: "State", number: int) -> "NodeChallenge":
    if number not in state.challenges:
        raise ConfigError(f"there is no challenge {number}", "muster challenge show lists all")
    return state.challenges[number]


def _row(state: "State", challenge: "NodeChallenge") -> dict[str, Any]:
    from cli.diagnose.views import picked

    trial = state.trials[challenge.trial]
    return picked(challenge, "challenge", "pool", "node", "accuser", "trial", "bond", "back", "slashed") | {
        "opened": challenge.time,
        "files": list(challenge.sequences),
        "jury": list(trial.seats),
        "votes": {
            str(trial.seats[juror]): challenge_label(Code(code)) for juror, (code, _) in sorted(trial.reveals.items())
        },
        "verdict_final_at": state.trials[challenge.trials[0]].appeal_until,
        "outcome": challenge.outcome.name.lower(),
        "code": challenge_label(Code(challenge.code)) if challenge.code else "",
    }
