"""A profile: what a person would otherwise name on every command, in one TOML file per role.

It lies in the user's configuration folder (`~/.config/muster/operator.toml` on Linux) or where MUSTER_PROFILE says.
Options override it, and so do environment variables.
"""

import os
from pathlib import Path
from typing import Any, Literal

import platformdirs
from pydantic import Field, field_validator

from protocol.encoding import Document, load_document
from protocol.errors import ConfigError
from sandbox.policy import Wanted

Role = Literal["operator", "validator", "owner"]
ROLES: tuple[Role, ...] = ("operator", "validator", "owner")


class ProfileKey(Document):
    """An encrypted key file, and the file (mode 0600) with its password; without one the terminal is asked."""

    keystore: Path
    password_file: Path | None = None


class ProfileEngine(Document):
    """As `engine` of a process's configuration; what is missing is chosen for this machine and the pool."""

    name: Literal["auto", "transformers", "vllm"] = "auto"
    device: str = "cpu"
    threads: int = Field(1, ge=1, le=1024)
    batch: int = Field(64, ge=1, le=65536)


class Profile(Document):
    """`service`: the URL of the pool's service. `key` holds the money: an operator's stake and pay, a validator's bonds
    and fees, an owner's budget. `node` signs an operator's files, `voters` vote for a validator's seats, one each;
    `service_key` signs an owner's upload receipts. `isolation`: how an operator's worker is kept apart from the
    machine; containers run `isolation_image`, named by its digest. `pool_config` and `s3` are an owner's files: the
    pool's configuration, and {endpoint, bucket, region, credentials}. `worker`, `validator`, `trainer`, `orchestrator`
    hold further fields of that process's configuration. Relative paths start at the profile's folder."""

    role: Role
    deployment: Path | None = None
    rpc: str | None = None
    pool: int | None = Field(None, ge=1)
    service: str | None = None
    home: Path
    cache: Path
    key: ProfileKey
    node: ProfileKey | None = None
    voters: tuple[ProfileKey, ...] = ()
    service_key: ProfileKey | None = None
    engine: ProfileEngine = ProfileEngine()
    allow_private_sources: bool = False
    isolation: Wanted = "auto"
    isolation_image: str = ""
    pool_config: Path | None = None
    s3: Path | None = None
    worker: dict[str, Any] = Field(default_factory=dict)
    validator: dict[str, Any] = Field(default_factory=dict)
    trainer: dict[str, Any] = Field(default_factory=dict)
    orchestrator: dict[str, Any] = Field(default_factory=dict)

    @field_validator("rpc", "service")
    @classmethod
    def _not_empty(cls, value: str | None) -> str | None:
        return value or None

    def at(self, folder: Path) -> "Profile":
        """The same with every path absolute."""

        def key(one: ProfileKey) -> ProfileKey:
            password = one.password_file and folder / one.password_file
            return ProfileKey(keystore=folder / one.keystore, password_file=password)

        changes = {
            "deployment": self.deployment and folder / self.deployment,
            "home": folder / self.home.expanduser(),
            "cache": folder / self.cache.expanduser(),
            "key": key(self.key),
            "node": self.node and key(self.node),
            "voters": tuple(map(key, self.voters)),
            "service_key": self.service_key and key(self.service_key),
            "pool_config": self.pool_config and folder / self.pool_config.expanduser(),
            "s3": self.s3 and folder / self.s3.expanduser(),
        }
        return self.model_copy(update=changes)


def profile_path(role: Role) -> Path:
    """Where the profile of a role lies, whether or not it is there."""
    named = os.environ.get("MUSTER_PROFILE")
    return Path(named) if named else platformdirs.user_config_path("muster") / f"{role}.toml"


def load_profile(path: Path) -> Profile:
    """The profile in a file. Raises ConfigError naming file and field."""
    return load_document(path, Profile, toml=True).at(path.absolute().parent)


def find_profile(role: Role | None) -> Profile | None:
    """The profile of a role, or without one the first that there is. None if there is none; raises ConfigError for one
    that cannot be read or, named by MUSTER_PROFILE, is missing."""
    if (named := os.environ.get("MUSTER_PROFILE")) and not Path(named).exists():
        raise ConfigError(f"there is no profile {named}", "muster init makes one; or unset MUSTER_PROFILE")
    for one in (role,) if role else ROLES:
        if (path := profile_path(one)).exists():
            found = load_profile(path)
            return found if role in (None, found.role) else None
    return None
