"""What an isolated program may see and use. Pure: each mode turns a policy and an argv into a command line."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from protocol.encoding import Document

MIB = 1 << 20
NOBODY = 65534
DIGEST = re.compile(r"(?:[a-z0-9][a-z0-9._:/-]*@)?sha256:[0-9a-f]{64}")
_HOST = re.compile(r"[a-z0-9.-]{1,253}:[0-9]{1,5}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Mode(Enum):
    """How a program is kept apart."""

    PODMAN = "podman"
    DOCKER = "docker"
    BUBBLEWRAP = "bubblewrap"
    PLAIN = "plain"

    @property
    def is_container(self) -> bool:
        return self in (Mode.PODMAN, Mode.DOCKER)


class NetworkAccess(Enum):
    """NONE: nothing but a loopback interface of its own. OUTBOUND: an own network with a way out, where the mode can
    make one (containers); the host's otherwise. HOST: the host's, with its loopback and abstract sockets."""

    NONE = "none"
    OUTBOUND = "outbound"
    HOST = "host"


class Mount(Document):
    """A host's file or folder as the program sees it. Absolute paths; `target` is `source` unless it is given."""

    source: Path
    target: Path
    writable: bool = False

    @classmethod
    def same(cls, path: Path, writable: bool = False) -> Self:
        """At the same path inside as outside."""
        return cls(source=path, target=path, writable=writable)

    @field_validator("source", "target")
    @classmethod
    def _plain_path(cls, path: Path) -> Path:
        # a colon or a comma would begin another field of a container engine's mount option
        if not path.is_absolute() or ".." in path.parts or not str(path).isprintable() or set(str(path)) & set(':,"'):
            raise ValueError(f"{str(path)!r} is not an absolute path without `..`, colon, comma and quote")
        return path


class IsolationPolicy(Document):
    """The defaults are for code of strangers. `hosts`: `name:port` in lower case, which can be reached by TLS through
    a proxy although `network` is NONE. `memory`, `scratch` (the size of /tmp and of /dev/shm each): bytes, of all
    processes together where the mode can count them so; `cpus`: processors; `seconds`: wall clock, None for ever.
    `devices` are paths under /dev; `gpu`: the machine's NVIDIA devices. `user`: the user id to be, for which the caller
    must be root; None: the caller's. `environment` is all that there is."""

    network: NetworkAccess = NetworkAccess.NONE
    hosts: tuple[str, ...] = ()
    memory: int | None = Field(1024 * MIB, ge=16 * MIB)
    cpus: float | None = Field(1.0, gt=0, le=1024)
    processes: int = Field(256, ge=1, le=1 << 20)
    open_files: int = Field(1024, ge=16, le=1 << 20)
    scratch: int = Field(256 * MIB, ge=MIB)
    seconds: float | None = Field(None, gt=0)
    mounts: tuple[Mount, ...] = ()
    devices: tuple[Path, ...] = ()
    gpu: bool = False
    environment: dict[str, str] = Field(default_factory=dict)
    folder: Path = Path("/tmp")
    user: int | None = Field(None, ge=1)

    @field_validator("environment")
    @classmethod
    def _names(cls, values: dict[str, str]) -> dict[str, str]:
        for name, value in values.items():
            if not _NAME.fullmatch(name) or "\0" in value or "\n" in value:
                raise ValueError(f"{name!r} is no name of a variable, or its value has more than one line")
        return values

    @field_validator("hosts")
    @classmethod
    def _names_with_ports(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not _HOST.fullmatch(host):
                raise ValueError(f"{host[:100]!r} is not `name:port` in lower case")
        return hosts

    @field_validator("devices")
    @classmethod
    def _under_dev(cls, devices: tuple[Path, ...]) -> tuple[Path, ...]:
        for path in devices:
            if path.parts[:2] != ("/", "dev") or len(path.parts) < 3 or ".." in path.parts or ":" in str(path):
                raise ValueError(f"{path} is no device under /dev")
        return devices

    @model_validator(mode="after")
    def _hosts_need_no_network(self) -> Self:
        if self.hosts and self.network is not NetworkAccess.NONE:
            raise ValueError("`hosts` limit nothing unless `network` is none")
        return self

    @model_validator(mode="after")
    def _scratch_fits(self) -> Self:
        # files in memory count as memory: when they fill it, the kernel ends the program instead of refusing a write
        if self.memory is not None and 2 * self.scratch > self.memory:
            raise ValueError("`scratch` is more than half of `memory`")
        return self


Wanted = Literal["auto", "container", "bubblewrap", "none"]
"""What a configuration asks for. auto: the strongest mode that works here."""


# What each mode protects


_HOST_NETWORK = "services on this machine's loopback and abstract sockets (it uses the host's network)"
_PER_PROCESS = "memory of all its processes together (counted per process: no cgroup can be made here)"


@dataclass(frozen=True)
class Claims:
    """Both as phrases that a list can be made of."""

    protected: tuple[str, ...]
    unprotected: tuple[str, ...]

    def text(self) -> str:
        """Return one line each for what is protected and what is not."""
        lines = [f"protected: {'; '.join(self.protected)}"] if self.protected else []
        lines += [f"NOT protected: {'; '.join(self.unprotected)}"] if self.unprotected else []
        return "\n".join(lines)


def claims(mode: Mode, policy: IsolationPolicy, accounting: bool) -> Claims:
    """`accounting`: whether limits hold for all processes together (containers; bubblewrap in a cgroup)."""
    if mode is Mode.PLAIN:
        return Claims((), tuple(_plainly()))
    protected = [
        "files outside its mounts",
        "other processes and their memory",
        "devices that are not its own",
        "capabilities, set-user-id programs, mounts, new namespaces",
    ]
    unprotected = list(_reachable(mode, policy))
    if policy.network is NetworkAccess.NONE:
        protected.append(f"the network, but for {', '.join(policy.hosts)}" if policy.hosts else "the network")
    if policy.memory is not None:
        (protected if accounting else unprotected).append("memory" if accounting else _PER_PROCESS)
    (protected if accounting or mode is Mode.BUBBLEWRAP else unprotected).append("number of processes")
    if policy.cpus is not None:
        (protected if accounting else unprotected).append("processor time")
    if policy.memory is None:
        unprotected.append("memory (no limit is set)")
    return Claims(tuple(protected), (*unprotected, "the kernel, against faults of its own"))


def _reachable(mode: Mode, policy: IsolationPolicy) -> Iterator[str]:
    if policy.network is NetworkAccess.HOST or (policy.network is NetworkAccess.OUTBOUND and not mode.is_container):
        yield _HOST_NETWORK
    if policy.network is not NetworkAccess.NONE:
        yield "machines that this one can reach"
    if policy.gpu:
        yield "the GPU and its driver"


def _plainly() -> Iterator[str]:
    yield from ("every file of this user, keys included", "the network", "other processes of this user", "devices")
    yield from ("memory", "number of processes", "processor time")
