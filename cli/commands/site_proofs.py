"""`muster site verify, watch, accuse, dispute, conclude`: what of a run on chain can be checked, and held against its
sites or its keeper."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.commands.site_chain import DocumentOption, RunOption, load_run, run_view, step_document
from cli.options import Acting, JsonOption, KeystoreOption, PasswordFileOption, Paying
from cli.output import emit
from cli.plan import PlannedTransaction, act
from protocol.amounts import show_tokens
from protocol.errors import ConfigError, printable

if TYPE_CHECKING:
    from protocol.sites.run import SitesRun

StepOption = Annotated[int, typer.Option("--step", min=0, help="Number of the outer step.")]
MemberOption = Annotated[
    Path,
    typer.Option(exists=True, dir_okay=False, help="A site's or keeper's configuration; its key is not opened."),
]


def verify(
    step: Annotated[int, typer.Argument(min=0, help="A recorded outer step.")],
    config: MemberOption,
    json: JsonOption = False,
) -> None:
    """Make a recorded outer step again from chain and bucket: contributions, which count, their weights, the state that
    they lead to, and whom the policy step names. No key is needed. Exit code 1 if anything is recorded otherwise."""
    from trainer.sites.config import member_config
    from trainer.sites.verified import verified

    found = verified(member_config(config), step)
    document = {
        "run": found.run, **step_document(found.recorded), "faults": found.faults, "follows": not found.faults,
        "policy_step": found.policy_step,
    }  # fmt: skip

    def text() -> str:
        verdict = [f"wrong: {printable(one, 300)}" for one in found.faults] or ["it follows from what was published"]
        led = f"outer step {step} of run {found.run} led to {found.recorded.record.state}"
        led += "" if found.policy_step is None else f", policy step {found.policy_step}"
        return "\n".join([led, *verdict])

    emit(document, json, text)
    if found.faults:
        raise typer.Exit(1)


def accuse(
    first: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A note's or log entry's bytes.")],
    document: DocumentOption,
    run: RunOption,
    by: Acting,
    second: Annotated[
        Path | None, typer.Argument(metavar="[SECOND]", exists=True, dir_okay=False, help="Another one's.")
    ] = None,
    step: Annotated[
        int | None, typer.Option("--step", min=0, help="Instead of SECOND: the outer step whose record names another.")
    ] = None,
) -> None:
    """Show that a site signed two contributions to one attempt, or the keeper two entries at one place of its log, or
    another than it recorded: it loses half of its stake, and you get a twentieth."""
    from protocol.sites.contradiction import keeper_contradiction, site_contradiction

    if (second is None) == (step is None):
        raise ConfigError("one statement proves nothing", "name a second one, or --step and its record")
    known = load_run(document)
    data = [_statement(path) for path in (first, second) if path is not None]
    if step is not None:
        _accuse_record(known, run, step, data[0], by)
        return
    session = by.open()
    runs = session.suite.site_runs
    if data[0].startswith(b'{"entry"'):
        of_keeper = keeper_contradiction(data[0], data[1], known)
        planned = PlannedTransaction(
            f"show two entries at place {of_keeper.number} of the log", runs.accuse_keeper(run, of_keeper)
        )
        act(session, [planned], by, run=run, accused=known.keeper, number=of_keeper.number)
        return
    proof = site_contradiction(data[0], data[1], known)
    title = f"show two contributions of {proof.site} to outer step {proof.step}, attempt {proof.attempt}"
    planned = PlannedTransaction(title, runs.accuse_site(run, proof))
    act(session, [planned], by, run=run, accused=proof.site, step=proof.step, attempt=proof.attempt)


def dispute(run: RunOption, step: StepOption, by: Paying) -> None:
    """Say before a jury that a recorded outer step does not follow from what was published. If the jury agrees the bond
    comes back, with a tenth of the keeper's stake; if it does not, the bond is lost. First: muster site verify."""
    session = by.open()
    view = run_view(session, run)
    if step >= view.steps:
        raise ConfigError(f"outer step {step} is not recorded", f"{view.steps} are: muster site show {run}")
    call = session.suite.site_runs.dispute(run, step)
    title = f"dispute outer step {step} of run {run}, with a bond of {show_tokens(call.grains)} tokens"

    def outcome(receipts: list[Any]) -> tuple[dict[str, Any], str]:
        number = call.result(receipts[0])
        return {"dispute": number}, f"dispute {number}; its jury votes now: muster site show {run} {step}"

    act(session, [PlannedTransaction(title, call)], by, outcome, run=run, step=step, bond=call.grains)


def conclude(
    dispute_number: Annotated[int, typer.Argument(metavar="DISPUTE", min=1, help="Number of the dispute.")], by: Paying
) -> None:
    """End a dispute whose jury is done, as validators do too, or have a jury that found no majority replaced."""
    session = by.open()
    call = session.suite.site_runs.conclude(dispute_number)
    planned = PlannedTransaction(f"conclude dispute {dispute_number}", call)
    act(session, [planned], by, dispute=dispute_number)


def watch(
    config: MemberOption,
    keystore: KeystoreOption = None,
    password_file: PasswordFileOption = None,
    home: Annotated[
        Path | None, typer.Option(file_okay=False, help="Where proofs are kept; `watch` in the home if missing.")
    ] = None,
    parent: Annotated[int | None, typer.Option(hidden=True, help="Process that this one must not outlive.")] = None,
) -> None:
    """Watch a run on chain without taking part: read what sites and keeper sign, compare records with the log, and show
    what cannot both be, if a key is named that can pay the gas; it gets the reward."""
    from runtime.keystore import open_key
    from trainer.sites.config import member_config
    from trainer.sites.watching import run_watch

    account = None if keystore is None else open_key(keystore, password_file)
    run_watch(member_config(config), account, home, parent)


def _statement(path: Path) -> bytes:
    """A file's bytes, of which a proof's are few."""
    from protocol.files import read_bounded
    from protocol.sites.log import MAX_ENTRY_BYTES

    return read_bounded(path, MAX_ENTRY_BYTES, "the statement ")


def _accuse_record(known: "SitesRun", run: int, step: int, data: bytes, by: Acting) -> None:
    """Show an entry where by the keeper's record another stands."""
    from protocol.sites.contradiction import signed_entry

    entry, signature = signed_entry(data, known)
    session = by.open()
    runs = session.suite.site_runs
    recorded = runs.recorded(run, step)
    if recorded is None or recorded.number != entry.number or recorded.says(entry):
        raise ConfigError(
            f"the record of outer step {step} does not contradict entry {entry.number}", "check --step and --run"
        )
    title = f"show another entry at place {entry.number} of the log than is recorded for outer step {step}"
    planned = PlannedTransaction(title, runs.accuse_record(run, recorded, entry, signature))
    act(session, [planned], by, run=run, accused=known.keeper, step=step, number=entry.number)
