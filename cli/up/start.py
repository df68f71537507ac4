"""Where `up` begins: the profile that is there, or a new one from what the pool's service says."""

import typer

from cli.access import ask_access, check_access
from cli.commands.init import make_profile
from cli.profile import Profile, Role, load_profile, profile_path
from cli.session import open_session
from protocol.errors import ConfigError
from protocol.http.signing import service_url


def open_up_profile(role: Role, url: str | None, rpc: str | None) -> Profile:
    """Raises ConfigError if there is neither a profile nor a URL, or the profile is of another role or pool;
    IntegrityError if the chain does not bear out what the service says."""
    path = profile_path(role)
    if not path.exists():
        if url is None:
            raise ConfigError("it is not known which pool to join", "pass --pool URL, the address of its service")
        access = ask_access(url, rpc)
        path.parent.mkdir(parents=True, exist_ok=True)
        access.save_deployment(path.parent / "deployment.json")
        session = open_session(path.parent / "deployment.json", ",".join(access.rpc))
        check_access(access, session.state())
        make_profile(role, access, rpc)
        typer.echo(f"profile: {path}")
    profile = load_profile(path)
    if profile.role != role:
        raise ConfigError(f"{path} is a profile of an {profile.role}", f"name that of an {role} with MUSTER_PROFILE")
    if url is not None and profile.service and service_url(url) != service_url(profile.service):
        what = f"the profile {path} is for {profile.service}, not for {url}"
        raise ConfigError(what, "leave --pool out, or set MUSTER_PROFILE to another file for another pool")
    return profile
