"""A process's configuration from the profile: for `up`, and for `muster worker|validator|trainer|orchestrator run`
without a file."""

import json
from pathlib import Path
from typing import Any

from cli.profile import Profile, ProfileKey, Role, find_profile, profile_path
from cli.session import open_session
from cli.up.isolation import isolation_values
from cli.up.pool_document import fetch_pool_config
from protocol.config import PoolConfig
from protocol.encoding import load_document
from protocol.errors import ConfigError
from protocol.files import explained, write_atomic
from runtime.keystore import address_of
from storage.s3 import S3Settings

_ROLES: dict[str, Role] = {
    "worker": "operator",
    "validator": "validator",
    "trainer": "owner",
    "orchestrator": "owner",
}


def profile_config(process: str) -> Path:
    """Write the configuration of a process and return where. Raises ConfigError for a profile that is not there or
    lacks something, UnreachableError if chain or service cannot say what it computes in."""
    role = _ROLES[process]
    profile = find_profile(role)
    if profile is None:
        hint = f"pass --config FILE, or: muster init {role}"
        raise ConfigError(f"there is no configuration, and no profile {profile_path(role)}", hint)
    if role == "owner":
        return _written(profile, process, owner_values(process, profile))
    return joined_config(profile, unattended=False)


def joined_config(profile: Profile, unattended: bool) -> Path:
    """That of an operator's worker or a validator; `unattended`: nobody is there to be asked for a password."""
    deployment, pool = _needed(profile.deployment, "deployment"), _needed(profile.pool, "pool")
    session = open_session(deployment, profile.rpc)
    session.pool(pool)
    service = profile.service or session.state().pools[pool].service_url
    config = fetch_pool_config(_needed(service, "service"), session.suite.court.terms_of(pool).configHash)
    values = _common(profile, list(session.client.provider.urls), service, config.model.dtype)
    session.client.close()
    if profile.role == "operator":
        node = key_of(_needed(profile.node, "node"), unattended)
        return _written(profile, "worker", values | {"node": node} | isolation_values(profile))
    voters = [key_of(one, unattended) for one in profile.voters]
    return _written(profile, "validator", values | {"voters": voters})


def owner_values(process: str, profile: Profile) -> dict[str, Any]:
    """What the trainer or the orchestrator needs. They have homes of their own within the profile's."""
    deployment, pool = _needed(profile.deployment, "deployment"), _needed(profile.pool, "pool")
    s3 = load_document(_needed(profile.s3, "s3"), S3Settings).model_dump(mode="json")
    path, session = _needed(profile.pool_config, "pool_config"), open_session(deployment, profile.rpc)
    rpc, home = list(session.client.provider.urls), str(profile.home / process)
    session.client.close()
    if process == "trainer":
        common = _common(profile, rpc, _needed(profile.service, "service"), PoolConfig.load(path).model.dtype)
        return common | {"home": home, "key": key_of(profile.key), "s3": s3}
    return {
        "home": home,
        "deployment": str(deployment),
        "rpc": rpc,
        "pool": pool,
        "pool_config": str(path),
        "owner": address_of(profile.key.keystore),
        "key": key_of(_needed(profile.service_key, "service_key")),
        "s3": s3,
        "public_url": profile.service or "",
    }


def key_of(key: ProfileKey, unattended: bool = False) -> dict[str, str | None]:
    """How a configuration names a key; without a password file the terminal is asked. Raises ConfigError where nobody
    is there to ask."""
    if unattended and key.password_file is None:
        what = f"{key.keystore} has no password file, which a process that restarts by itself needs"
        raise ConfigError(what, "write the password into a file of mode 0600 and name it in the profile")
    return {"keystore": str(key.keystore), "password_file": str(key.password_file) if key.password_file else None}


def _common(profile: Profile, rpc: list[str], service: str, dtype: str) -> dict[str, Any]:
    """What worker, validator and trainer have in common."""
    return {
        "home": str(profile.home),
        "cache": str(profile.cache),
        "deployment": str(profile.deployment),
        "rpc": rpc,
        "pool": profile.pool,
        "orchestrator": service,
        "allow_private_sources": profile.allow_private_sources,
        "engine": profile.engine.model_dump() | {"dtype": dtype},
    }


def _written(profile: Profile, process: str, values: dict[str, Any]) -> Path:
    """Made anew at every start: the profile is what people change."""
    path, own = profile.home / f"{process}.json", getattr(profile, process)
    with explained(f"write {path}", "check `home` in the profile"):
        write_atomic(path, json.dumps(values | own, indent=2).encode() + b"\n")
    return path


def _needed(value: Any, field: str) -> Any:
    if not value:
        raise ConfigError(f"the profile names no `{field}`", "set it there, or pass --config FILE")
    return value
