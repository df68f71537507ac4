"""What an isolated program may see and use. Pure: each mode turns a policy and an argv into a command line."""

import re
from enum import Enum
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from protocol.encoding import Document

MIB = 1 << 20
NOBODY = 65534
DIGEST = re.compile(r"(?:[a-z0-9][a-z0-9._:/-]*@)?sha256:[0-9a-f]{64}")


class Mode(Enum):
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
    """A host's file or folder as the program sees it. Both paths are absolute."""

    source: Path
    target: Path
    writable: bool = False

    @classmethod
    def same(cls, path: Path, writable: bool = False) -> Self:
        return cls(source=path, target=path, writable=writable)

    @field_validator("source", "target")
    @classmethod
    def _plain_path(cls, path: Path) -> Path:
        # a colon or a comma would begin another field of a container engine's mount option
        if not path.is_absolute() or ".." in path.parts or not str(path).isprintable() or set(str(path)) & set(':,"'):
            raise ValueError(f"{str(path)!r} is not an absolute path without `..`, colon, comma and quote")
        return path


_Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
_Line = Annotated[str, Field(pattern=r"^[^\x00\n]*$")]


class IsolationPolicy(Document):
    """The defaults are for code of strangers. `memory`, `scratch` (/tmp and /dev/shm each): bytes, of all processes
    together where the mode can count them so; `seconds`: wall clock, None for ever. `gpu`: NVIDIA devices. `user`: the
    user id to be, for which the caller must be root; None: the caller's. `environment` is all that there is."""

    network: NetworkAccess = NetworkAccess.NONE
    memory: int | None = Field(1024 * MIB, ge=16 * MIB)
    processes: int = Field(256, ge=1, le=1 << 20)
    open_files: int = Field(1024, ge=16, le=1 << 20)
    scratch: int = Field(256 * MIB, ge=MIB)
    seconds: float | None = Field(None, gt=0)
    mounts: tuple[Mount, ...] = ()
    gpu: bool = False
    environment: dict[_Variable, _Line] = Field(default_factory=dict)
    folder: Path = Path("/tmp")
    user: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _scratch_fits(self) -> Self:
        # files in memory count as memory: when they fill it, the kernel ends the program instead of refusing a write
        if self.memory is not None and 2 * self.scratch > self.memory:
            raise ValueError("`scratch` is more than half of `memory`")
        return self


# What a configuration asks for. auto: the strongest mode that works here.
Wanted = Literal["auto", "container", "bubblewrap", "none"]


def claims(mode: Mode, policy: IsolationPolicy, accounting: bool) -> tuple[list[str], list[str]]:
    """Return what a mode protects and what not. `accounting`: whether limits hold for all processes together."""
    if mode is Mode.PLAIN:
        files = ["every file of this user, keys included", "the network", "other processes of this user", "devices"]
        return [], [*files, "memory", "number of processes", "processor time"]
    protected = ["files outside its mounts", "other processes and their memory", "devices that are not its own"]
    protected.append("capabilities, set-user-id programs, mounts, new namespaces")
    unprotected = list[str]()
    if policy.network is NetworkAccess.NONE:
        protected.append("the network")
    else:
        if policy.network is NetworkAccess.HOST or not mode.is_container:
            unprotected.append("services on this machine's loopback and abstract sockets (it uses the host's network)")
        unprotected.append("machines that this one can reach")
    if policy.gpu:
        unprotected.append("the GPU and its driver")
    limited = protected if accounting else unprotected
    if policy.memory is None:
        unprotected.append("memory (no limit is set)")
    else:
        per_process = " of all its processes together (counted per process: no cgroup can be made here)"
        limited.append("memory" + ("" if accounting else per_process))
    (protected if mode is Mode.BUBBLEWRAP else limited).append("number of processes")
    return protected, [*unprotected, "the kernel, against faults of its own"]
