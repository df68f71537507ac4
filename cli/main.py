"""The `muster` command. Sub-commands live in `cli/commands/`, one file per noun; heavy imports stay inside them."""

import itertools
import logging
import os
import sys
from typing import Annotated

import typer
from typer.exceptions import Abort, TyperException

from cli.commands import (
    calibrate,
    case,
    data,
    dataset,
    demo,
    deploy,
    diloco,
    doctor,
    governance,
    init,
    keys,
    ledger,
    local_network,
    node,
    pool,
    relay,
    report,
    run,
    status,
    support,
    swarm,
    task,
    trainer,
    validator,
    verify,
    watch,
    weights,
    why,
)
from cli.examples import add_examples
from cli.options import Commands
from cli.profile_defaults import profile_defaults
from protocol.errors import MusterError
from runtime.logs import start_logging

log = logging.getLogger("muster.cli")

app = Commands(
    help="Pool computers to post-train language models by reinforcement learning, without trusting one another.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        from protocol.version import VERSION

        typer.echo(f"muster {VERSION}")
        raise typer.Exit


@app.callback()
def muster(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    pass


app.command("calibrate")(calibrate.calibrate)
app.command("demo")(demo.demo)
app.command("deploy")(deploy.deploy)
app.command("doctor")(doctor.doctor)
app.command("init")(init.init)
app.command("up")(local_network.up)
app.command("down")(local_network.down)
app.command("ps")(local_network.ps)
app.command("logs")(local_network.logs)
app.command("status")(status.status)
app.command("verify")(verify.verify)
app.command("watch")(watch.watch)
app.command("why")(why.why)
app.add_typer(keys.app, name="keys")
app.add_typer(case.app, name="case")
app.add_typer(data.app, name="data")
app.add_typer(dataset.app, name="dataset")
app.add_typer(ledger.app, name="ledger")
app.add_typer(node.app, name="node")
app.add_typer(trainer.app, name="trainer")
app.add_typer(validator.app, name="validator")
app.add_typer(pool.app, name="pool")
app.add_typer(task.app, name="task")
app.add_typer(weights.app, name="weights")
app.add_typer(relay.app, name="relay")
app.add_typer(governance.app, name="governance")
app.add_typer(report.app, name="run")
app.add_typer(support.app, name="support")
app.add_typer(diloco.app, name="diloco")
app.add_typer(swarm.app, name="swarm")
run.register(app, {"trainer": trainer.app, "validator": validator.app})
add_examples(app)


def main() -> None:
    """Entry point: what a person can put right, wrong usage included, is one line and exit code 2; Ctrl-C is exit
    code 130. All else is a bug and shows its traceback."""
    try:
        start_logging()
        code = app(standalone_mode=False, default_map=profile_defaults(app))
    except MusterError as error:
        print(f"muster: {error}", file=sys.stderr)
        sys.exit(2)
    except TyperException as error:
        if message := usage_error(error):
            print(f"muster: {message}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        if error.filename is None:
            raise
        log.debug("what happened", exc_info=True)
        reason = f"cannot use {os.fsdecode(error.filename)}: {error.strerror}"
        print(f"muster: {reason}; check the path, its permissions and the room on its disk", file=sys.stderr)
        sys.exit(2)
    except (KeyboardInterrupt, Abort):
        print("muster: interrupted", file=sys.stderr)
        sys.exit(130)
    sys.exit(code if isinstance(code, int) else 0)


def usage_error(error: TyperException) -> str:
    """One line on a command that was typed wrongly, ending in where to look; empty if its help was shown instead."""
    message = " ".join(error.format_message().split()).rstrip(".")
    context = getattr(error, "ctx", None)
    nouns = itertools.takewhile(lambda word: not word.startswith("-"), sys.argv[1:])
    command = context.command_path if context is not None else " ".join(["muster", *nouns])
    return f"{message[:1].lower()}{message[1:]}; see `{command} --help`" if message else ""


if __name__ == "__main__":
    main()
