"""`muster init`: one commented profile per role, so that keys, deployment, pool and addresses are named once."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import JsonOption, YesOption
from cli.output import emit
from protocol.errors import ConfigError

if TYPE_CHECKING:
    from cli.access import Access
    from cli.profile import Role
    from cli.profile_file import ProfileFiles


@dataclass(frozen=True)
class OwnerOptions:
    """What an owner's profile names besides."""

    deployment: Annotated[
        Path | None, typer.Option(help="An owner's: deployment file of the suite that the pool is to live in.")
    ] = None
    url: Annotated[str | None, typer.Option(help="An owner's: where the pool's service will answer.")] = None
    pool_config: Annotated[Path | None, typer.Option(help="An owner's: the pool's configuration.")] = None
    s3: Annotated[
        Path | None, typer.Option(help="An owner's: JSON file of the bucket {endpoint, bucket, region, credentials}.")
    ] = None

    def files(self) -> "ProfileFiles":
        """Where they are, whatever the folder of the profile."""
        from cli.profile_file import ProfileFiles

        named = {"deployment": self.deployment, "pool_config": self.pool_config, "s3": self.s3}
        return ProfileFiles(**{name: path.absolute() for name, path in named.items() if path is not None})


def init(
    role: Annotated[str, typer.Argument(help="operator, validator or owner.")],
    pool: Annotated[str | None, typer.Option("--pool", metavar="URL", help="URL of the pool's service.")] = None,
    rpc: Annotated[str | None, typer.Option("--rpc", help="RPC URL instead of the one that the service names.")] = None,
    home: Annotated[Path | None, typer.Option(help="Folder for what the process must not lose.")] = None,
    owned: OwnerOptions = OwnerOptions(),
    force: Annotated[bool, typer.Option("--force", help="Write a profile anew. Keys are never touched.")] = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Write the profile of a role: everything that is named once and read by every command. An owner's keys are made
    if they are not there."""
    from cli.access import ask_access

    kind = role_of(role)
    if kind != "owner" and owned != OwnerOptions():
        raise ConfigError("--deployment, --url, --pool-config and --s3 are an owner's", "leave them out")
    if pool is None and kind != "owner":
        if yes or not sys.stdin.isatty():
            raise ConfigError("the pool's URL is missing", "pass --pool URL")
        pool = typer.prompt("URL of the pool's service", err=True)
    access = ask_access(pool, rpc) if pool else None
    path = make_profile(kind, access, rpc, home, force, owned)
    lines, keys = [f"profile: {path}"], make_owner_keys(path) if kind == "owner" else {}
    lines += [f"{name} key: {address}" for name, address in keys.items()]
    shown = {"role": kind, "profile": str(path)} | ({"keys": keys} if keys else {})
    emit(shown, json, lambda: "\n".join([*lines, f"next: {_NEXT[kind]}"]))


_NEXT = {
    "operator": "muster node up",
    "validator": "muster validator up",
    "owner": "muster pool init, muster pool check, muster pool create",
}


def role_of(text: str) -> "Role":
    """Raises ConfigError for what is no role."""
    from cli.profile import ROLES

    for role in ROLES:
        if role == text:
            return role
    raise ConfigError(f"there is no role {text!r}", f"choose one of {', '.join(ROLES)}")


def make_profile(
    role: "Role",
    access: "Access | None",
    rpc: str | None,
    home: Path | None = None,
    force: bool = False,
    owned: OwnerOptions = OwnerOptions(),
) -> Path:
    """Write the profile and, beside it, the deployment file of the pool's service."""
    import platformdirs

    from cli.profile import profile_path
    from cli.profile_file import profile_text, write_profile
    from protocol.files import user_cache

    path = profile_path(role)
    text = profile_text(
        role,
        pool=access.pool if access else None,
        service=access.url if access else owned.url,
        rpc=rpc or (",".join(access.rpc) if access else None),
        home=(home or platformdirs.user_data_path("muster") / role).absolute(),
        cache=user_cache("weights"),
        files=owned.files(),
    )
    write_profile(path, text, force)
    if access is not None:
        access.save_deployment(path.parent / "deployment.json")
    return path


def make_owner_keys(path: Path) -> dict[str, str]:
    """Those of a profile that are missing; the addresses of both."""
    from cli.profile import load_profile
    from cli.up.keys import ensure_key

    profile = load_profile(path)
    keys = {"owner": profile.key} | ({"service": profile.service_key} if profile.service_key else {})
    return {name: ensure_key(key) for name, key in keys.items()}
