"""`muster site open, join, leave, close, withdraw, show`: a run on chain, and the stakes that stand behind it."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import Acting, Paying, Reading, address_option, tokens_option
from cli.output import clock, emit, fields
from cli.plan import PlannedTransaction, act
from protocol.amounts import show_tokens
from protocol.errors import ConfigError

if TYPE_CHECKING:
    from chain.contracts.site_runs import RecordedStep, RunView
    from cli.session import Session
    from protocol.sites.run import SitesRun

_CONSENT_SECONDS = 3600

DocumentOption = Annotated[Path, typer.Option(exists=True, dir_okay=False, help="The run's document, JSON or TOML.")]
RunOption = Annotated[int, typer.Option("--run", min=1, help="Number of the run on chain.")]
SiteOption = Annotated[str | None, address_option("--site", "Address of the site; the paying key's if missing.")]


@dataclass(frozen=True)
class ConsentingKey:
    """The key of a site or keeper, which consents to what another key pays."""

    own_keystore: Annotated[
        Path | None, typer.Option(help="Key file of the site or keeper; the paying key if missing.", dir_okay=False)
    ] = None
    own_password_file: Annotated[Path | None, typer.Option(help="Password of that key.", dir_okay=False)] = None

    def consent(self, session: "Session", document: bytes) -> tuple[str, int, bytes]:
        """Address, expiry, and its consent, empty where it pays itself. Raises MusterError."""
        from runtime.keystore import address_of, open_key

        owner = session.client.address
        if self.own_keystore is None or address_of(self.own_keystore) == owner:
            return owner, 0, b""
        expiry, key = session.client.now() + _CONSENT_SECONDS, open_key(self.own_keystore, self.own_password_file)
        return key.address, expiry, session.suite.site_runs.sign_consent(key, document, owner, expiry)


def open_run(
    document: DocumentOption,
    stake: Annotated[int, tokens_option("--stake", "Tokens that each site locks.")],
    keeper_stake: Annotated[int, tokens_option("--keeper-stake", "Tokens that you lock for the keeper.")],
    key: ConsentingKey,
    by: Paying,
    model: Annotated[str | None, typer.Option(help="Folder or Hugging Face id of the weights it begins with.")] = None,
    start: Annotated[str | None, typer.Option(help="Instead of --model: the digest of its first state.")] = None,
    delay: Annotated[int, typer.Option(min=1, help="Seconds for which a step can be disputed, and stake stays.")] = (
        7 * 86_400
    ),
) -> None:
    """Open a run on chain: its document, what sites and keeper lock, and the state that it begins from. None of it can
    change. The pool that the document names judges disputes."""
    from chain.contracts.site_runs import RunTerms
    from trainer.sites.run_chain import check_audits, check_place

    run = load_run(document)
    check_audits(run)
    session = by.open()
    check_place(run, session.deployment)
    digest, first = bytes.fromhex(run.digest), _first_state(model, start)
    keeper, expiry, consent = key.consent(session, digest)
    if keeper != run.keeper:
        what = f"the keeper of {run.name} is {run.keeper}, this key is {keeper}"
        raise ConfigError(what, "name its key with --own-keystore, or pay with it")
    terms = RunTerms(digest, first, run.pool, keeper, stake, keeper_stake, delay)
    call = session.suite.site_runs.open(terms, expiry, consent)
    judged = f"pool {run.pool} judges disputes" if run.pool else "nobody judges disputes"
    title = (
        f"open run {run.name}: {show_tokens(keeper_stake)} tokens for its keeper, {show_tokens(stake)} for each site, "
        f"{delay} s to dispute a step; {judged}"
    )

    def outcome(receipts: list[Any]) -> tuple[dict[str, Any], str]:
        number = call.result(receipts[0])
        return {"run": number}, f"run {number}: name it as `run` of `chain` in the configurations of keeper and sites"

    planned = PlannedTransaction(title, call)
    act(
        session, [planned], by, outcome,
        document=run.digest, start=first.hex(), stake=stake, keeper_stake=keeper_stake, delay=delay,
    )  # fmt: skip


def join(
    document: DocumentOption,
    run: RunOption,
    key: ConsentingKey,
    by: Paying,
    model: Annotated[
        str | None, typer.Option(help="Folder or Hugging Face id: pay only if the run begins from these weights.")
    ] = None,
) -> None:
    """Lock a site's stake, so that the keeper takes it in; a key joins a run once. Whoever opened the run says which
    state it begins from: where that is nobody's, no step of it can be judged, so name the model."""
    from trainer.sites.run_chain import check_place, check_run, check_start

    known, session = load_run(document), by.open()
    check_place(known, session.deployment)
    view = run_view(session, run)
    check_run(view, run, known)
    if model is not None:
        check_start(view, _first_state(model, None))
    site, expiry, consent = key.consent(session, bytes.fromhex(known.digest))
    if site not in known.sites:
        raise ConfigError(f"{site} is no site of {known.name}", "use the key of one, or another run")
    call = session.suite.site_runs.join(run, view.site_stake, site, expiry, consent)
    judged = f"pool {view.pool} judges disputes" if view.pool else "nobody judges disputes"
    title = (
        f"lock {show_tokens(view.site_stake)} tokens in run {run} for {site}, free {view.delay} s after leaving; its "
        f"keeper has {show_tokens(view.stake)} at stake, {judged}"
    )
    act(session, [PlannedTransaction(title, call)], by, run=run, site=site, stake=view.site_stake)


def leave(run: RunOption, by: Acting, site: SiteOption = None) -> None:
    """End a site's membership on chain; its stake can be withdrawn after the run's delay."""
    session = by.open()
    view, named = run_view(session, run), site or session.client.address
    title = f"{named} leaves run {run}; its stake is free {view.delay} s later"
    act(session, [PlannedTransaction(title, session.suite.site_runs.leave(run, named))], by, run=run, site=named)


def close(run: RunOption, by: Paying) -> None:
    """End a run, as who paid its keeper's stake: nothing more is recorded, and the stake is free after the delay."""
    session = by.open()
    title = f"close run {run}; its keeper's stake is free {run_view(session, run).delay} s later"
    act(session, [PlannedTransaction(title, session.suite.site_runs.close(run))], by, run=run)


def withdraw(
    run: RunOption,
    by: Acting,
    site: SiteOption = None,
    keeper: Annotated[bool, typer.Option("--keeper", help="The keeper's stake, of a run that is over.")] = False,
) -> None:
    """Take a stake back, to the key that paid it: a site's, or the keeper's."""
    if keeper and site:
        raise ConfigError("--site and --keeper name two stakes", "name one")
    session = by.open()
    runs, view, named = session.suite.site_runs, run_view(session, run), site or session.client.address
    free, held = (view.release_at, view.stake) if keeper else _of_site(session, run, named)
    if not free:
        left = f"muster site close --run {run}" if keeper else f"muster site leave --run {run}"
        raise ConfigError("the stake is locked as long as it is needed", f"{left}, and this {view.delay} s later")
    if free > session.client.now():
        raise ConfigError(f"the stake is locked until {clock(free)}", "run this again then")
    call = runs.withdraw_keeper(run) if keeper else runs.withdraw(run, named)
    title = f"withdraw {show_tokens(held)} tokens from run {run}"
    act(session, [PlannedTransaction(title, call)], by, run=run, grains=held)


def show(
    run: Annotated[int, typer.Argument(min=1, help="Number of the run on chain.")],
    look: Reading,
    step: Annotated[int | None, typer.Argument(metavar="[STEP]", min=0, help="A recorded outer step.")] = None,
) -> None:
    """A run on chain: stakes, recorded steps; or what is recorded of one step, and how a dispute of it stands."""
    session = look.open()
    view = run_view(session, run)
    if step is None:
        document = {**vars(view), "document": view.document.hex(), "start": view.start.hex()}
        emit(document, look.json, lambda: _run_text(view))
        return
    found, where = session.suite.site_runs.recorded(run, step), session.suite.site_runs.step_of(run, step)
    if found is None:
        raise ConfigError(f"outer step {step} is not recorded", f"{view.steps} are")
    dispute = session.suite.site_runs.dispute_of(where.dispute) if where.dispute else None
    stands = {
        "dispute": where.dispute, "outcome": dispute.outcome.name.lower() if dispute else "",
        "disputable_until": where.time + view.delay if view.pool else 0,
    }  # fmt: skip
    emit({**step_document(found), **stands}, look.json, lambda: _step_text(found, stands))


def load_run(path: Path) -> "SitesRun":
    from protocol.documents import load_document
    from protocol.sites.run import SitesRun

    return load_document(path, SitesRun)


def _first_state(model: str | None, start: str | None) -> bytes:
    """The digest of the state that a run begins from. Raises ConfigError."""
    if (model is None) == (start is None):
        raise ConfigError("name the state that the run begins from", "--model, or --start with its digest")
    if start is not None:
        try:
            digest = bytes.fromhex(start)
        except ValueError:
            digest = b""
        if len(digest) != 32:
            raise ConfigError(f"{start[:80]} is no digest", "64 hexadecimal digits")
        return digest
    from trainer.sites.first_state import first_state

    assert model is not None
    return first_state(model).digest


def run_view(session: "Session", run: int) -> "RunView":
    view = session.suite.site_runs.run_of(run)
    if not view.exists:
        count = int(session.suite.site_runs.read("opened"))
        raise ConfigError(f"there is no run {run} on chain", f"runs are 1 to {count}" if count else "muster site open")
    return view


def _of_site(session: "Session", run: int, site: str) -> tuple[int, int]:
    """When a site's stake is free, 0 while it is a member, and how much it is."""
    view = session.suite.site_runs.site_of(run, site)
    if not view.joined:
        raise ConfigError(f"{site} never joined run {run}", "check --site and --run")
    return view.release_at, view.stake


def _run_text(view: "RunView") -> str:
    over = f"over; its keeper's stake is free from {clock(view.release_at)}" if view.release_at else "open"
    rows = {
        "document": view.document.hex(),
        "begins from": view.start.hex(),
        "keeper": view.keeper + (" (signed two entries at one place)" if view.ejected else ""),
        "keeper's stake": f"{show_tokens(view.stake)} tokens",
        "a site's stake": f"{show_tokens(view.site_stake)} tokens",
        "judges": f"seats of pool {view.pool}" if view.pool else "nobody",
        "time to dispute": f"{view.delay} s",
        "steps recorded": str(view.steps),
        "open disputes": str(view.disputes),
        "stands": over,
    }
    return fields(rows)


def step_document(found: "RecordedStep") -> dict[str, Any]:
    made = found.record
    return {
        "step": made.step,
        "state": made.state,
        "entry": found.number,
        "contributions": [vars(one) for one in made.contributions],
    }


def _step_text(found: "RecordedStep", stands: dict[str, Any]) -> str:
    made = found.record
    until = f"until {clock(stands['disputable_until'])}" if stands["disputable_until"] else "by nobody"
    rows = {
        "outer step": str(made.step),
        "led to": made.state,
        "entry of the log": str(found.number),
        "can be disputed": until,
        "dispute": f"{stands['dispute']}, {stands['outcome']}" if stands["dispute"] else "none",
    }
    lines = [f"{one.site}  {one.weight / 10**9:.9f}  {one.document}" for one in made.contributions]
    return "\n".join([fields(rows), *lines])
