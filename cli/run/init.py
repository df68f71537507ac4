"""`muster init` and `muster config show`: one commented profile per role names keys, deployment and pool once."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Option

from cli.options import Commands, JsonOption, PoolOption, ServiceRpcOption, YesOption
from cli.output import emit, fields
from cli.profile import ROLES, Role, load_profile, option_values, profile_path, profile_text
from protocol.errors import ConfigError
from protocol.files import user_cache, write_file

if TYPE_CHECKING:
    from cli.session import Access

config_app = Commands(help="What commands take from the profile.", no_args_is_help=True)
config_app.callback()(lambda: None)

_NEXT = {
    "operator": "muster node up",
    "validator": "muster validator up",
    "owner": "muster pool init, muster pool check, muster pool create",
}


@dataclass(frozen=True)
class OwnerOptions:
    """What an owner's profile names besides."""

    deployment: Annotated[Path | None, Option(help="An owner's: deployment file of the pool to come.")] = None
    url: Annotated[str | None, Option(help="An owner's: where the pool's service will answer.")] = None
    pool_config: Annotated[Path | None, Option(help="An owner's: the pool's configuration.")] = None
    s3: Annotated[Path | None, Option(help="An owner's: JSON file of the bucket and its key.")] = None


def init(
    role: Annotated[Literal["operator", "validator", "owner"], Argument(help="Whose profile it is.")],
    pool: PoolOption = None,
    rpc: ServiceRpcOption = None,
    home: Annotated[Path | None, Option(help="Folder for what the process must not lose.")] = None,
    owned: OwnerOptions = OwnerOptions(),
    force: Annotated[bool, Option("--force", help="Replace the profile; keys are never touched.")] = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Write the profile of a role, which every command reads, and make an owner's keys."""
    from cli.session import ask_access
    from runtime.keystore import ensure_key

    if role != "owner" and owned != OwnerOptions():
        raise ConfigError("--deployment, --url, --pool-config and --s3 are an owner's", "leave them out")
    url = pool.url if pool else None
    if url is None and role != "owner":
        if yes or not sys.stdin.isatty():
            raise ConfigError("the URL of the pool's service is missing", "pass --pool URL")
        url = typer.prompt("URL of the pool's service", err=True)
    access = ask_access(url, rpc) if url else None
    path = make_profile(role, access, rpc, home, force, owned)
    profile = load_profile(path)
    key_configs = {"owner": profile.key, "service": profile.service_key} if role == "owner" else {}
    keys = {name: ensure_key(key.keystore, key.password_file) for name, key in key_configs.items() if key}
    lines = [f"profile: {path}", *(f"{name} key: {address}" for name, address in keys.items())]
    shown = {"role": role, "profile": str(path)} | ({"keys": keys} if keys else {})
    emit(shown, json, lambda: "\n".join([*lines, f"next: {_NEXT[role]}"]))


def make_profile(
    role: "Role",
    access: "Access | None",
    rpc: str | None,
    home: Path | None = None,
    force: bool = False,
    owned: OwnerOptions = OwnerOptions(),
) -> Path:
    """Write a profile and the service's deployment file beside it. Raises ConfigError if there is one already."""
    import platformdirs

    path = profile_path(role)
    if path.exists() and not force:
        raise ConfigError(f"there is a profile in {path} already", "change it there, or pass --force to replace it")
    files = {"deployment": owned.deployment, "pool_config": owned.pool_config, "s3": owned.s3}
    text = profile_text(
        role,
        pool=access.pool if access else None,
        service=access.url if access else owned.url,
        rpc=rpc or (",".join(access.rpc) if access else None),
        home=(home or platformdirs.user_data_path("muster") / role).absolute(),
        # An isolated worker can write to its cache, which a validator must not trust.
        cache=user_cache("node-weights" if role == "operator" else "weights"),
        **{name: file.absolute() for name, file in files.items() if file is not None},
    )
    write_file(path, text.encode(), "check the folder, or set MUSTER_PROFILE", mode=0o600)
    if access is not None:
        access.save_deployment(path.parent / "deployment.json", replace=force)
    return path


@config_app.command("show", "muster config show --json")
def show(json: JsonOption = False) -> None:
    """Show every profile of this user, and what commands take from it."""
    profiles = {}
    for path in dict.fromkeys(map(profile_path, ROLES)):
        if path.exists():
            profile = load_profile(path)
            values = {f"--{name.replace('_', '-')}": value for name, value in option_values(profile).items()}
            profiles[str(path)] = {"role": profile.role, "home": str(profile.home)} | {
                name: _shown(value) for name, value in values.items()
            }
    if not profiles:
        raise ConfigError("there is no profile yet", "muster init operator, validator or owner writes one")
    emit(profiles, json, lambda: "\n\n".join(f"{path}\n{fields(values)}" for path, values in profiles.items()))


def _shown(value: object) -> str:
    """An option's value; addresses that are read from key files that are not there yet are unknown."""
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    try:
        return str(value() if callable(value) else value)
    except ConfigError:
        return "no key yet"
