"""`muster init`: one commented profile per role, so that keys, deployment, pool and addresses are named once."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import JsonOption, YesOption
from cli.output import emit
from protocol.errors import ConfigError

if TYPE_CHECKING:
    from cli.access import Access
    from cli.profile import Role


def init(
    role: Annotated[str, typer.Argument(help="operator, validator or owner.")],
    pool: Annotated[str | None, typer.Option("--pool", metavar="URL", help="URL of the pool's service.")] = None,
    rpc: Annotated[str | None, typer.Option("--rpc", help="RPC URL instead of the one that the service names.")] = None,
    home: Annotated[Path | None, typer.Option(help="Folder for what the process must not lose.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write a profile anew. Keys are never touched.")] = False,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Write the profile of a role: everything that is named once and read by every command."""
    from cli.access import ask_access

    kind = role_of(role)
    if pool is None and kind != "owner":
        if yes or not sys.stdin.isatty():
            raise ConfigError("the pool's URL is missing", "pass --pool URL")
        pool = typer.prompt("URL of the pool's service", err=True)
    access = ask_access(pool, rpc) if pool else None
    path = make_profile(kind, access, rpc, home, force)
    emit({"role": kind, "profile": str(path)}, json, lambda: f"profile: {path}\nnext: {_NEXT[kind]}")


_NEXT = {
    "operator": "muster node up",
    "validator": "muster validator up",
    "owner": "muster keys create, then muster pool check",
}


def role_of(text: str) -> "Role":
    """Raises ConfigError for what is no role."""
    from cli.profile import ROLES

    for role in ROLES:
        if role == text:
            return role
    raise ConfigError(f"there is no role {text!r}", f"choose one of {', '.join(ROLES)}")


def make_profile(
    role: "Role", access: "Access | None", rpc: str | None, home: Path | None = None, force: bool = False
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
        service=access.url if access else None,
        rpc=rpc or (",".join(access.rpc) if access else None),
        home=(home or platformdirs.user_data_path("muster") / role).absolute(),
        cache=user_cache("weights"),
    )
    write_profile(path, text, force)
    if access is not None:
        access.save_deployment(path.parent / "deployment.json")
    return path
