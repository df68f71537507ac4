"""A profile: what a person would otherwise name on every command, in one TOML file per role.

It lies in the user's configuration folder (`~/.config/muster/operator.toml` on Linux) or where MUSTER_PROFILE says.
Options override it, and so do environment variables.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import platformdirs
import tomlkit
import typer
from pydantic import Field, field_validator
from typer.main import get_command

from protocol.encoding import Document, load_document
from protocol.errors import ConfigError
from protocol.files import write_atomic
from sandbox.policy import Wanted

Role = Literal["operator", "validator", "owner"]
ROLES: tuple[Role, ...] = ("operator", "validator", "owner")


class ProfileKey(Document):
    """A key of the profile."""

    keystore: Path = Field(description="Encrypted key file.")
    password_file: Path | None = Field(
        None, description="File (mode 0600) with its password; not set: the terminal asks."
    )


class ProfileEngine(Document):
    """As `engine` of a process's configuration; what is missing is chosen for this machine and the pool."""

    name: Literal["auto", "transformers", "vllm"] = Field(
        "auto", description="Engine; auto: vLLM where it is installed."
    )
    device: str = Field("cpu", description="Where the model runs: cpu or cuda.")
    threads: int = Field(1, ge=1, le=1024, description="Threads that compute.")
    batch: int = Field(64, ge=1, le=65536, description="Rollouts in one pass of the model.")


class Profile(Document):
    """What a person need not name on every command. Relative paths start at the profile's folder."""

    role: Role = Field(description="Whose profile it is.")
    deployment: Path | None = Field(None, description="Deployment file: addresses of the contracts, and their chain.")
    rpc: str | None = Field(
        None, description="RPC URL of the chain; several, with commas between them, are tried in order."
    )
    pool: int | None = Field(None, ge=1, description="Number of the pool.")
    service: str | None = Field(None, description="URL of the pool's service.")
    home: Path = Field(description="Folder of the process's state: never delete it while work is under way.")
    cache: Path = Field(description="Folder of weights, by their hash; can be deleted while nothing runs.")
    key: ProfileKey = Field(description="Key that holds the money: stake and pay, bonds and fees, or the budget.")
    node: ProfileKey | None = Field(None, description="Key that signs an operator's files.")
    voters: tuple[ProfileKey, ...] = Field((), description="Keys that vote for a validator's seats, one each.")
    service_key: ProfileKey | None = Field(None, description="Key that relays files of an owner's pool.")
    engine: ProfileEngine = Field(
        ProfileEngine(), description="What computes; fields that are not set are chosen for machine and pool."
    )
    allow_private_sources: bool = Field(
        False, description="Follow URLs that others chose into private networks: for networks on one machine only."
    )
    isolation: Wanted = Field(
        "auto",
        description="How processes are kept from machine and keys: container, bubblewrap, none, or auto (the best).",
    )
    isolation_image: str = Field(
        "", description="Image that containers run, as NAME@sha256:… or sha256:…; without one there is no container."
    )
    pool_config: Path | None = Field(None, description="An owner's pool configuration.")
    s3: Path | None = Field(None, description="An owner's bucket: JSON file {endpoint, bucket, region, credentials}.")
    worker: dict[str, Any] = Field(default_factory=dict, description="Further fields of the worker's configuration.")
    validator: dict[str, Any] = Field(
        default_factory=dict, description="Further fields of the validator's configuration."
    )
    trainer: dict[str, Any] = Field(default_factory=dict, description="Further fields of the trainer's configuration.")
    orchestrator: dict[str, Any] = Field(
        default_factory=dict, description="Further fields of the orchestrator's configuration."
    )

    @field_validator("rpc", "service")
    @classmethod
    def _not_empty(cls, value: str | None) -> str | None:
        return value or None

    def at(self, folder: Path) -> "Profile":
        """The same with every path absolute."""

        def absolute(value: Any) -> Any:
            match value:
                case Path():
                    return folder / value.expanduser()
                case ProfileKey():
                    return value.model_copy(update={name: absolute(path) for name, path in value})
                case tuple():
                    return tuple(map(absolute, value))
            return value

        return self.model_copy(update={name: absolute(value) for name, value in self})

    def named_keys(self) -> list[tuple[str, ProfileKey]]:
        """Return every key with what it is for: the role's own, voter, node, or service."""
        keys = [(str(self.role), self.key), *(("voter", voter) for voter in self.voters)]
        keys += [("node", self.node)] if self.node else []
        return [*keys, *([("service", self.service_key)] if self.service_key else [])]


def profile_path(role: Role) -> Path:
    """Where the profile of a role lies, whether or not it is there."""
    named = os.environ.get("MUSTER_PROFILE")
    return Path(named) if named else platformdirs.user_config_path("muster") / f"{role}.toml"


def load_profile(path: Path) -> Profile:
    """The profile in a file. Raises ConfigError naming file and field."""
    return load_document(path, Profile, toml=True).at(path.absolute().parent)


def find_profile(role: Role | None) -> Profile | None:
    """The profile of a role, or the first that there is. Raises ConfigError for one that cannot be read."""
    if (named := os.environ.get("MUSTER_PROFILE")) and not Path(named).exists():
        raise ConfigError(f"there is no profile {named}", "muster init makes one; or unset MUSTER_PROFILE")
    for known_role in (role,) if role else ROLES:
        if (path := profile_path(known_role)).exists():
            profile = load_profile(path)
            return profile if role in (None, profile.role) else None
    return None


# Writing a profile


_HEAD = (
    "# What `muster` need not be told on every command. Options override it, and so do environment variables.",
    "# Relative paths start at this file's folder. Without a password file the terminal asks for the password.",
)
_FIELDS = ("deployment", "rpc", "pool", "service", "home", "cache", "allow_private_sources")
_ISOLATION, _BUCKET = ("isolation", "isolation_image"), ("pool_config", "s3")
# A role's own key and the other one that it needs: table, name of the files, what for
_KEYS = {
    "operator": (
        ("[key]", "operator", "Holds the stake and receives the pay."),
        ("[node]", "node", "Signs the node's files."),
    ),
    "validator": (
        ("[key]", "validator", "Pays the bonds, owns the seats and receives the fees."),
        ("[[voters]]", "voter-1", "Votes for a seat; repeat this table for more seats."),
    ),
    "owner": (
        ("[key]", "owner", "Owns the pool and its budget."),
        ("[service_key]", "service", "The orchestrator's: it relays files."),
    ),
}
_PROCESSES = {"operator": ("worker",), "validator": ("validator",), "owner": ("trainer", "orchestrator")}


def profile_text(role: Role, **given: Path | str | int | None) -> str:
    """Return a new profile with the `given` fields; every line says what it is for. Keys lie in `keys/` beside it."""
    from cli.hardware import driver_answers

    values = {"deployment": "deployment.json", "pool_config": "pool.toml", "s3": "s3.json"} | given
    values |= {"allow_private_sources": False, "isolation": "auto"}
    lines = [*_HEAD, f'role = "{role}"']
    for name in (*_FIELDS, *_ISOLATION, *(_BUCKET if role == "owner" else ())):
        value = values.get(name)
        item = tomlkit.item(str(value) if isinstance(value, Path) else value) if value is not None else None
        lines += [_comment(name), f"# {name} =" if item is None else f"{name} = {item.as_string()}"]
    for table, file, what in _KEYS[role]:
        files = (f'keystore = "keys/{file}.json"', f'password_file = "keys/{file}.password"')
        lines += ["", f"# {what} Keep a copy of both files elsewhere.", table, *files]
    if role != "owner":
        engine = ('name = "auto"', f'device = "{"cuda" if driver_answers() else "cpu"}"', "threads = 1", "batch = 64")
        lines += ["", _comment("engine"), "[engine]", *engine]
    for process in _PROCESSES[role]:
        lines += ["", _comment(process), f"[{process}]"]
    return "\n".join(lines) + "\n"


def _comment(field: str) -> str:
    return f"# {Profile.model_fields[field].description}"


def name_pool(path: Path, pool: int) -> None:
    """Write the pool's number into a profile that names none; comments and everything else stay."""
    document = tomlkit.parse(path.read_text().replace("\n# pool =\n", f"\npool = {pool}\n", 1))
    document.setdefault("pool", pool)
    write_atomic(path, tomlkit.dumps(document).encode(), 0o600)


def name_model_folder(path: Path, folder: Path) -> None:
    """Write into an owner's profile where the trainer finds the base model."""
    document = tomlkit.parse(path.read_text())
    document.setdefault("trainer", tomlkit.table())["base"] = str(folder)
    write_atomic(path, tomlkit.dumps(document).encode(), 0o600)


# What a profile says, as defaults of the commands' options


_ROLE_OF: "dict[str, Role]" = {"node": "operator", "validator": "validator", "pool": "owner"}
# Commands that take no defaults: they make profiles or networks, or act with keys of their own
_WITHOUT = frozenset({"init", "up", "down", "ps", "logs", "watch", "demo", "deploy", "governance"})


def profile_defaults(app: typer.Typer) -> dict[str, Any]:
    """Return defaults of the command that is about to run; typer asks the command line and the environment first."""
    arguments = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    if not arguments or _WITHOUT & set(arguments[:2]) or {"-h", "--help", "--version"} & set(sys.argv):
        return {}
    profile = find_profile(_ROLE_OF.get(arguments[0]))
    chosen = profile or find_profile(None)
    if chosen is None:
        return {}
    values = option_values(chosen)
    if profile is None:  # an operator who looks at a pool: chain and contracts are everybody's, keys are not
        values = {name: values[name] for name in ("deployment", "rpc") if name in values}
    command: Any = get_command(app)
    path = []
    for argument in arguments:
        if argument not in getattr(command, "commands", ()):
            break
        command = command.commands[argument]
        path.append(argument)
    defaults = command_defaults(command, values)
    for argument in reversed(path):
        defaults = {argument: defaults}
    return defaults


def command_defaults(command: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Return the values that a command has options for; addresses are read from key files when they are asked for."""
    multiples = {option.name: option.multiple for option in command.params if option.name in values}
    if command.name == "create" and values.get("pool", "")[:1].isdecimal():  # a second pool has its own service
        multiples = {name: multiple for name, multiple in multiples.items() if name not in ("url", "service_key")}
    if command.name == "judge" and any(word.partition("=")[0] == "--group" for word in sys.argv):
        multiples.pop("pool", None)

    def default(value: Any, multiple: bool) -> Any:
        if multiple:
            every = value if isinstance(value, list) else [value]
            return lambda: [str(each() if callable(each) else each) for each in every]
        return value if callable(value) else str(value)

    return {name: default(values[name], multiple) for name, multiple in multiples.items()}


def _pool(profile: Profile) -> str | None:
    """Return NUMBER@URL; without a URL that is none, which `muster doctor` reports."""
    from protocol.http.signing import service_url

    try:
        url = service_url(profile.service) if profile.service else ""
    except ConfigError:
        url = ""
    return "@".join(part for part in (str(profile.pool or ""), url) if part) or None


def option_values(profile: Profile) -> dict[str, Any]:
    """Return option → value; addresses are read from key files when they are asked for."""
    options: dict[str, Any] = {
        "deployment": profile.deployment,
        "rpc": profile.rpc,
        "pool": _pool(profile),
        "keystore": profile.key.keystore,
        "password_file": profile.key.password_file,
    }
    if profile.role == "operator" and profile.node:
        options |= {"node_keystore": profile.node.keystore, "node_password_file": profile.node.password_file}
        options["node"] = _address(profile.node)
    if profile.role == "validator":
        options |= {"voter": [_address(voter) for voter in profile.voters], "address": _address(profile.key)}
    if profile.role == "owner" and profile.service_key:
        options |= {"service_key": _address(profile.service_key), "url": profile.service}
    return {name: value for name, value in options.items() if value is not None}


def _address(key: ProfileKey) -> Callable[[], str]:
    from runtime.keystore import address_of

    return lambda: address_of(key.keystore)
