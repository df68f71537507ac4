"""`muster swarm`: a member of a swarm, and the gate of its bucket."""

import json as json_module
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.options import Commands, JsonOption
from cli.output import emit, fields
from protocol.errors import ConfigError

app = Commands(help="Train a policy of your own, and learn from what others share.", no_args_is_help=True)


@app.command("run", "muster swarm run --config member.json")
def run(
    config: Annotated[Path, typer.Option(exists=True, dir_okay=False, help="Configuration file.")],
    gate: Annotated[bool, typer.Option("--gate", help="Run a gate of the swarm's bucket instead.")] = False,
) -> None:
    """Run the member: generate, share, draw and train until stopped. SIGTERM ends it after the round.

    A gate serves members who hold no key of the swarm's bucket: it signs upload URLs for them and lists envelopes."""
    from swarm.gate import run as run_gate
    from swarm.main import run as run_member

    (run_gate if gate else run_member)(config)


@app.command("status", "muster swarm status --home me")
def status(
    home: Annotated[Path, typer.Option(file_okay=False, help="Folder of the member's state.")], json: JsonOption = False
) -> None:
    """Show the member's progress and rewards, and the record of every peer."""
    from swarm.state import JOURNAL, STATUS, measured, read_journal

    path = home / STATUS
    if not path.is_file():
        raise ConfigError(f"no member in {home} has made a round yet", "muster swarm run --config FILE")
    document = json_module.loads(path.read_bytes())
    rounds = read_journal(home / JOURNAL)
    document["cumulative_reward"] = round(sum(one["reward"] for one in rounds), 6)
    document["shared_groups_used"] = sum(len(one["shared"]) for one in rounds)
    document["held_out"] = [{"rounds": trained, "reward": reward} for trained, reward in measured(rounds)]
    emit(document, json, lambda: _text(document))


def _text(document: dict[str, Any]) -> str:
    ends = document["held_out"][:1] + document["held_out"][1:][-1:]
    measured = [f"{one['reward']:.3f} after {one['rounds']} rounds" for one in ends]
    rows = {
        "member": document["member"],
        "rounds made": document["round"] + 1,
        "reward": f"{document['reward']:.3f} in the last round, {document['cumulative_reward']:.3f} in all",
        "held-out reward": ", ".join(measured) or "not measured (`evaluation.every` in the configuration)",
        "exchange": "gone, going on alone" if document["alone"] else "there",
        "shared groups": f"{document['shared_groups_used']} trained on, {document['offers']} on offer",
        "not sent yet": f"{document['unsent']} envelopes",
    }
    lines = [
        f"{peer}: {record['true']} true groups, {record['unfit']} of no use here, {record['breaches']} breaches"
        for peer, record in document["peers"].items()
    ]
    return "\n".join([fields(rows), *lines])
