"""`muster validator up`: from nothing to judging, with the bond last."""

from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import DryRunOption, JsonOption, YesOption
from cli.output import emit
from protocol.errors import ConfigError, MusterError

if TYPE_CHECKING:
    from cli.up.validator import ValidatorUp

_REPORT_SECONDS = 10.0


def up(
    pool: Annotated[str | None, typer.Option("--pool", metavar="URL", help="URL of the pool's service.")] = None,
    rpc: Annotated[str | None, typer.Option("--rpc", help="RPC URL instead of the one that the service names.")] = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Take whatever steps are missing, then judge: profile, keys, gas, tokens, engine and weights, and only then bonds.

    It shows what a bond risks and asks once. It can be stopped and run again at any point; while seats are bonded, keep
    it running."""
    from cli.up.start import open_up_profile
    from cli.up.validator import ValidatorUp
    from cli.up.validator_steps import next_step

    profile = open_up_profile("validator", pool, rpc)
    if profile.pool is None:
        raise ConfigError("the profile names no pool", "set `pool` in it, or pass --pool URL")
    way = ValidatorUp(profile, profile.pool, yes)
    if dry_run:
        step = next_step(way.facts())
        shown = {"dry_run": True, "next": step.do.value, "why": step.why, "amount": step.amount}
        emit(shown, json, lambda: f"next: {step.do.value}: {step.why}\ndry run: nothing was done")
        return
    try:
        way.prepare()
        code = _work(way)
    finally:
        if way.process is not None:
            way.process.stop()
    if code:
        raise typer.Exit(code)


def _work(way: "ValidatorUp") -> int:
    """Run the process until it ends, and say what the seats earned whenever that changes."""
    from cli.up.reports import seats_line

    if way.process is None:
        way.start()
    process, said = way.process, [""]

    def look() -> None:
        try:
            line = seats_line(way.session.state(), way.facts().owner)
        except MusterError as error:
            line = f"trouble: {error}; the process goes on by itself"
        if line != said[0]:
            said[0] = line
            typer.echo(line)

    assert process is not None
    return process.run(look, _REPORT_SECONDS)
