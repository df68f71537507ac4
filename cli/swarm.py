"""`muster swarm`: a member of a swarm."""

import json as json_module
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.options import Commands, JsonOption, KeystoreOption, PasswordFileOption
from cli.output import emit, fields
from protocol.errors import ConfigError

app = Commands(help="Train a policy of your own, and learn from what others share.", no_args_is_help=True)

CONFIG = "member.json"
HomeOption = Annotated[Path, typer.Option("--home", help="Folder of the member's state.", file_okay=False)]
DocumentOption = Annotated[Path, typer.Option(exists=True, dir_okay=False, help="The swarm's document, JSON or TOML.")]


@dataclass(frozen=True)
class Sharing:
    """Where envelopes are left and found."""

    exchange: Annotated[
        Path | None, typer.Option(file_okay=False, help="Folder where members leave their envelopes.")
    ] = None
    s3: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Bucket instead: {endpoint, bucket, credentials}.")
    ] = None

    gate: Annotated[
        str | None, typer.Option(help="URL of a swarm's gate instead, for who holds no key of its bucket.")
    ] = None

    def values(self) -> dict[str, Any]:
        from protocol.encoding import load_document
        from storage.s3 import S3Settings

        bucket = None if self.s3 is None else load_document(self.s3, S3Settings).model_dump(mode="json")
        gate = None if self.gate is None else {"url": self.gate}
        return {"exchange": _absolute(self.exchange), "s3": bucket, "gate": gate}


@app.command(
    "init", "muster swarm init --home me --document swarm.json --model model --keystore key.json --exchange all"
)
def init(
    home: HomeOption,
    document: DocumentOption,
    sharing: Sharing,
    model: Annotated[str, typer.Option(help="Folder or Hugging Face id of the model to train.")],
    keystore: KeystoreOption = None,
    password_file: PasswordFileOption = None,
    member: Annotated[list[str] | None, typer.Option(help="Read this address's envelopes only; repeat it.")] = None,
    own: Annotated[int, typer.Option(min=1, max=256, help="Groups of its own in a round.")] = 4,
    shared: Annotated[int, typer.Option(min=0, max=256, help="Groups of others in a round.")] = 4,
    prompt_template: Annotated[str, typer.Option(help="Text around {question}.")] = "{question}",
    chat_template: Annotated[bool, typer.Option("--chat-template", help="Ask by the model's chat template.")] = False,
    json: JsonOption = False,
) -> None:
    """Check that this machine has the swarm's environments and the key, and write the member's configuration."""
    from protocol.encoding import canonical_json, parse_document
    from protocol.files import write_atomic
    from runtime.keystore import address_of
    from swarm.config import SwarmMemberConfig
    from swarm.member import load_swarm

    if keystore is None:
        raise ConfigError("a member signs what it shares", "pass --keystore FILE (muster keys create)")
    values: dict[str, Any] = {
        "home": str(home.absolute()),
        "document": str(document.absolute()),
        "model": {"source": model, "prompt_template": prompt_template, "chat_template": chat_template},
        "key": {"keystore": str(keystore.absolute()), "password_file": _absolute(password_file)},
        **sharing.values(),
        "members": member or [],
        "mix": {"own": own, "shared": shared},
    }
    config = parse_document(canonical_json(values), SwarmMemberConfig, "the options")
    swarm, _ = load_swarm(config)
    path = home / CONFIG
    if path.exists():
        raise ConfigError(f"{path} is there already", "edit it, or name another --home")
    write_atomic(path, json_module.dumps(config.model_dump(mode="json"), indent=1).encode() + b"\n", 0o600)
    joined = {
        "member": address_of(keystore), "swarm": swarm.name, "document": swarm.digest.hex(), "config": str(path)
    }  # fmt: skip
    emit(joined, json, lambda: fields(joined) + f"\nnext: muster swarm run --home {home}")


@app.command("run", "muster swarm run --home me")
def run(
    home: HomeOption | None = None,
    gate: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Instead: run a gate by this configuration.")
    ] = None,
) -> None:
    """Run the member: generate, share, draw and train until stopped. SIGTERM ends it after the round.

    A gate serves members who hold no key of the swarm's bucket: it signs upload URLs for them and lists envelopes."""
    from swarm.gate import run as run_gate
    from swarm.main import run as run_member

    if gate is not None:
        run_gate(gate)
    elif home is None:
        raise ConfigError("no member is named", "pass --home FOLDER, or --gate FILE")
    else:
        run_member(_config(home))


@app.command("status", "muster swarm status --home me")
def status(home: HomeOption, json: JsonOption = False) -> None:
    """Show the member's progress and rewards, and the record of every peer."""
    from swarm.state import JOURNAL, STATUS, measured, read_journal

    _config(home)
    path = home / STATUS
    if not path.is_file():
        raise ConfigError(f"the member of {home} has made no round yet", f"muster swarm run --home {home}")
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


def _config(home: Path) -> Path:
    path = home / CONFIG
    if not path.is_file():
        raise ConfigError(f"no member lives in {home}", "muster swarm init")
    return path


def _absolute(path: Path | None) -> str | None:
    return None if path is None else str(path.absolute())
