"""`muster swarm`: a member of a swarm, and the gate of its bucket."""

import json as json_module
from pathlib import Path
from typing import Annotated

from typer import Option

from cli.options import Commands, ConfigFileOption, JsonOption
from cli.output import emit
from protocol.errors import ConfigError

app = Commands(help="Train a policy of your own, and learn from what others share.", no_args_is_help=True)


@app.command("run", "muster swarm run --config member.json")
def run(
    config: ConfigFileOption,
    gate: Annotated[bool, Option("--gate", help="Run a gate of the swarm's bucket instead.")] = False,
) -> None:
    """Run the member: generate, share, draw and train until stopped. SIGTERM ends it after the round.

    A gate serves members who hold no key of the swarm's bucket: it signs upload URLs for them and lists envelopes."""
    from swarm.gate import run as run_gate
    from swarm.main import run as run_member

    (run_gate if gate else run_member)(config)


@app.command("status", "muster swarm status --home me")
def status(
    home: Annotated[Path, Option(file_okay=False, help="Folder of the member's state.")], json: JsonOption = False
) -> None:
    """Show the member's progress and rewards, and the record of every peer."""
    from swarm.state import JOURNAL, STATUS, measured, read_journal

    path = home / STATUS
    if not path.is_file():
        raise ConfigError(f"no member in {home} has made a round yet", "muster swarm run --config FILE")
    document = json_module.loads(path.read_bytes())
    rounds = read_journal(home / JOURNAL)
    document["cumulative_reward"] = round(sum(row["reward"] for row in rounds), 6)
    document["shared_groups_used"] = sum(len(row["shared"]) for row in rounds)
    document["held_out"] = [{"rounds": trained, "reward": reward} for trained, reward in measured(rounds)]
    emit(document, json)
