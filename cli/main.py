"""The `muster` command. Sub-commands live in `cli/commands/`, one file per noun; heavy imports stay inside them."""

import logging
import os
import sys

import typer

from cli.commands import demo, deploy, doctor, keys, node, pool, run, status, validator, verify
from protocol.errors import MusterError

app = typer.Typer(
    help="Pool computers to post-train language models by reinforcement learning, without trusting one another.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("demo")(demo.demo)
app.command("deploy")(deploy.deploy)
app.command("doctor")(doctor.doctor)
app.command("status")(status.status)
app.command("verify")(verify.verify)
app.add_typer(keys.app, name="keys")
app.add_typer(node.app, name="node")
app.add_typer(validator.app, name="validator")
app.add_typer(pool.app, name="pool")
run.register(app, validator.app)


def main() -> None:
    """Entry point: a MusterError is one line and exit 2, Ctrl-C exit 130; anything else is a bug and shows itself."""
    logging.basicConfig(
        level=os.environ.get("MUSTER_LOG", "INFO").upper(),
        format="%(asctime)s %(levelname).1s %(name)s: %(message)s",
        datefmt="%H:%M:%S",
        stream=sys.stderr,
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        app()
    except MusterError as error:
        print(f"muster: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("muster: interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
