"""`muster node up`: from nothing to earning, and on from wherever it was interrupted."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import DryRunOption, JsonOption, YesOption, tokens_option
from cli.output import emit
from protocol.errors import ConfigError, MusterError

if TYPE_CHECKING:
    from cli.profile import Profile
    from cli.up.node import NodeUp

_REPORT_SECONDS = 10.0


def up(
    pool: Annotated[str | None, typer.Option("--pool", metavar="URL", help="URL of the pool's service.")] = None,
    stake: Annotated[int | None, tokens_option("--stake", "Tokens to stake; the pool's least if missing.")] = None,
    invite: Annotated[Path | None, typer.Option(help="Invite of the pool's owner, where one is needed.")] = None,
    rpc: Annotated[str | None, typer.Option("--rpc", help="RPC URL instead of the one that the service names.")] = None,
    isolation: Annotated[
        str | None, typer.Option(help="How the worker is kept apart: auto, container, bubblewrap or none.")
    ] = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Take whatever steps are missing, then work: profile, keys, gas, tokens, registration, stake, joining, worker.

    It shows the pool's terms and asks once. It can be stopped and run again at any point. Exit code 3: the node was
    ejected."""
    from cli.up.isolation import with_isolation
    from cli.up.node import NodeUp, load_invite
    from cli.up.node_steps import next_step
    from cli.up.start import open_up_profile

    profile = with_isolation(open_up_profile("operator", pool, rpc), isolation)
    way = NodeUp(profile, _pool_of(profile), stake or 0, yes=yes)
    way.invite = load_invite(invite, way)
    if dry_run:
        step = next_step(way.facts())
        shown = {"dry_run": True, "next": step.do.value, "why": step.why, "amount": step.amount}
        emit(shown, json, lambda: f"next: {step.do.value}: {step.why}\ndry run: nothing was done")
        return
    way.prepare()
    code = _work(way)
    if code:
        raise typer.Exit(code)


def _pool_of(profile: "Profile") -> int:
    if profile.pool is None:
        raise ConfigError("the profile names no pool", "set `pool` in it, or pass --pool URL")
    return profile.pool


def _work(way: "NodeUp") -> int:
    """Run the worker, and say when something changes or is missing."""
    from cli.up.isolation import isolation_words
    from cli.up.node_steps import next_step
    from cli.up.process import UpProcess
    from cli.up.process_config import joined_config
    from cli.up.reports import earned_line
    from cli.up.steps import UpDo
    from runtime.presence import last_line

    path = joined_config(way.profile, unattended=True)
    typer.echo(isolation_words(path))
    process, said = UpProcess("worker", way.profile, path), [""]

    def look() -> None:
        try:
            facts = way.facts()
            step = next_step(facts)
            state, now = way.session.state(), way.session.client.now()
            lines = [earned_line(state, way.pool, facts.node, now, last_line(process.log_path))]
            if step.do not in (UpDo.RUN, UpDo.STOP):
                lines.append(f"to do: {step.why}; run `muster node up` again to see to it")
        except MusterError as error:
            lines = [f"trouble: {error}; the worker goes on by itself"]
        if lines != said:
            said[:] = lines
            typer.echo("\n".join(lines))

    process.start()
    return process.run(look, _REPORT_SECONDS)
