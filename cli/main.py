"""The `muster` command. One file per noun, in folders much like the panels of the help; heavy imports stay inside the
commands."""

import itertools
import sys
from typing import Annotated, Any

import typer
from typer import Option
from typer.core import TyperGroup
from typer.exceptions import Abort, TyperException

from cli import local, upgrade
from cli.advanced import deploy, diloco, governance, swarm
from cli.audit import challenge, ledger, verify
from cli.diagnose import doctor
from cli.options import Commands
from cli.pool import commands as pool
from cli.pool import dataset, env
from cli.run import init, keys, node, validator, weights
from runtime.entry import Exit, run_main

# Panels of the help, by whom they are for: node operators and validators, pool owners, anybody who checks, who tries
# the network on one machine, and who runs a deployment or trains in another way
PANELS = RUN, OWN, VERIFY, LOCAL, ADVANCED = "Run", "Own", "Verify", "Local", "Advanced"


class _InPanels(TyperGroup):
    """Lists the commands of a panel together, the panels in their order."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(
            self.commands, key=lambda name: PANELS.index(getattr(self.commands[name], "rich_help_panel", RUN))
        )


app = Commands(
    cls=_InPanels,
    help="Pool computers to post-train language models by reinforcement learning, and check one another's work.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        from protocol import VERSION

        typer.echo(f"muster {VERSION}")
        raise typer.Exit


@app.callback()
def muster(
    version: Annotated[bool, Option("--version", callback=_version, is_eager=True, help="Print the version.")] = (
        False
    ),
) -> None:
    pass


app.command("init", "muster init operator --pool https://pool.example", rich_help_panel=RUN)(init.init)
app.add_typer(node.app, name="node", rich_help_panel=RUN)
app.add_typer(validator.app, name="validator", rich_help_panel=RUN)
app.add_typer(weights.app, name="weights", rich_help_panel=RUN)
app.add_typer(keys.app, name="keys", rich_help_panel=RUN)
app.command("doctor", "muster doctor --pool https://pool.example", rich_help_panel=RUN)(doctor.doctor)
app.command("watch", "muster watch --config watch.toml", rich_help_panel=RUN)(doctor.watch)
app.command("upgrade", "muster upgrade --from wheel", rich_help_panel=RUN)(upgrade.upgrade)
app.add_typer(init.config_app, name="config", rich_help_panel=RUN)
app.add_typer(pool.app, name="pool", rich_help_panel=OWN)
app.add_typer(env.app, name="env", rich_help_panel=OWN)
app.add_typer(dataset.app, name="dataset", rich_help_panel=OWN)
app.command("why", "muster why 17 --pool 1", rich_help_panel=VERIFY)(doctor.why)
app.add_typer(verify.app, name="verify", rich_help_panel=VERIFY)
app.add_typer(challenge.app, name="challenge", rich_help_panel=VERIFY)
app.command("ledger", "muster ledger --pool 1 --table payouts --out payouts.csv", rich_help_panel=VERIFY)(ledger.ledger)
app.command("demo", "muster demo --seed 7 --steps 30", rich_help_panel=LOCAL)(local.demo)
app.command("up", "muster up --workers 2 --validators 2", rich_help_panel=LOCAL)(local.up)
app.command("ps", "muster ps --json", rich_help_panel=LOCAL)(local.ps)
app.command("logs", "muster logs trainer -f", rich_help_panel=LOCAL)(local.logs)
app.command("down", "muster down", rich_help_panel=LOCAL)(local.down)
app.add_typer(diloco.app, name="diloco", rich_help_panel=ADVANCED)
app.add_typer(swarm.app, name="swarm", rich_help_panel=ADVANCED)
app.command(
    "deploy", "muster deploy --network base-sepolia --keystore deployer.json --dry-run", rich_help_panel=ADVANCED
)(deploy.deploy)
app.add_typer(governance.app, name="governance", rich_help_panel=ADVANCED)


def main() -> None:
    """Run the command line. Wrong usage is one line and exit code 2, as everything else that a person can put right."""
    run_main(_command)


def _command() -> int:
    from cli.profile import profile_defaults

    try:
        code = app(standalone_mode=False, default_map=profile_defaults(app))
    except TyperException as error:
        if message := usage_error(error):
            print(f"muster: {message}", file=sys.stderr)
        return Exit.REFUSED
    except Abort:
        raise KeyboardInterrupt from None
    return code if isinstance(code, int) else Exit.DONE


_NAMED_BY = {"node": "operator", "address": "validator"}  # option → whose profile names it


def usage_error(error: TyperException) -> str:
    """Return one line on a command that was typed wrongly, ending in where to look; empty if its help was shown."""
    message = " ".join(error.format_message().split()).rstrip(".")
    option = getattr(getattr(error, "param", None), "name", "")
    if message.startswith("Missing option") and (role := _NAMED_BY.get(option)):
        message += f", which the profile names that `muster init {role}` writes"
    context = getattr(error, "ctx", None)
    nouns = itertools.takewhile(lambda word: not word.startswith("-"), sys.argv[1:])
    command = context.command_path if context is not None else " ".join(["muster", *nouns])
    return f"{message[:1].lower()}{message[1:]}; see `{command} --help`" if message else ""


if __name__ == "__main__":
    main()
