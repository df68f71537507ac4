"""What a package of the `verifiers` library is, to the byte: a document whose hash a pool's configuration names."""

import hashlib
import platform
import re
import sys
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from protocol.encoding import Document, canonical_json, parse_document, sha256_hex
from protocol.errors import ConfigError, IntegrityError
from protocol.files import read_bounded

MAX_LOCK_BYTES = 1 << 20
MAX_ROWS = 1 << 17
_HASH = r"^[0-9a-f]{64}$"
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
_LOAD = re.compile(r"[A-Za-z_][\w.-]{0,199}(:[A-Za-z_]\w{0,99})?", re.ASCII)


class LockedWheel(Document):
    """One distribution. `carried`: no index has it, it travels in the pool's bucket by its hash, as `file`."""

    name: str = Field(pattern=_NAME)
    version: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+!-]{0,99}$")
    sha256: str = Field(pattern=_HASH)
    file: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,199}\.whl$")
    carried: bool = False


class PackageLock(Document):
    """`package`: what was asked for. `load`: a module, or `module:callable`, called with `arguments`; `split`: which of
    its datasets. `library`: version of verifiers. `python` and `machine`: where these wheels run. `rows`: how many
    problems it makes, `data`: SHA-256 over the first 16 bytes of the SHA-256 of each, then of its most turns and its
    tools if it has several or some."""

    format: Literal["muster/verifiers/1"] = "muster/verifiers/1"
    package: str = Field(max_length=200)
    load: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    split: Literal["train", "eval"] = "train"
    library: str = Field(max_length=40)
    licence: str = Field("unknown", max_length=100)
    python: str = Field(pattern=r"^3\.\d{1,2}$")
    machine: str = Field(max_length=40)
    wheels: tuple[LockedWheel, ...] = Field(min_length=1, max_length=1000)
    rows: int = Field(ge=1, le=MAX_ROWS)
    data: str = Field(pattern=_HASH)

    @field_validator("load")
    @classmethod
    def _loadable(cls, load: str) -> str:
        if not _LOAD.fullmatch(load):
            raise ValueError("it is no module, nor `module:callable`")
        return load

    @model_validator(mode="after")
    def _one_each(self) -> Self:
        names = [re.sub(r"[-_.]+", "-", one.name).lower() for one in self.wheels]
        if len(set(names)) < len(names):
            raise ValueError("it has a package twice")
        return self

    @property
    def content(self) -> str:
        """Hex SHA-256 of the document."""
        return sha256_hex(self.document)

    @property
    def document(self) -> bytes:
        """Canonical JSON and a line's end."""
        return canonical_json(self.model_dump(mode="json")) + b"\n"

    @property
    def carried(self) -> list[str]:
        """The hashes of the wheels that no index has."""
        return [one.sha256 for one in self.wheels if one.carried]

    @property
    def installation(self) -> str:
        """What is installed, whatever is loaded of it: hex SHA-256."""
        told = [self.python, self.machine, *sorted(f"{one.file} {one.sha256}" for one in self.wheels)]
        return hashlib.sha256("\n".join(told).encode()).hexdigest()

    def check_machine(self) -> None:
        """Raises ConfigError where these wheels are for another Python or another kind of machine."""
        if (self.python, self.machine) != (this_python(), this_machine()):
            raise ConfigError(
                f"{self.package} is locked for Python {self.python} on {self.machine}; this is {this_python()} on "
                f"{this_machine()}",
                "run muster with that Python, or let the pool's owner lock it anew",
            )


def this_python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def this_machine() -> str:
    return f"{platform.system()}-{platform.machine()}".lower()


def read_lock(path: Path, content: str) -> PackageLock:
    """The lock in a file. Raises ConfigError where it is missing or is none, IntegrityError for other bytes."""
    if not path.is_file():
        raise ConfigError(f"there is no lock of a package {path}", "put it there under the name of its SHA-256")
    data = read_bounded(path, MAX_LOCK_BYTES, "the lock ")
    if sha256_hex(data) != content:
        raise IntegrityError(f"{path} has another SHA-256 than {content[:16]}…", "fetch it again")
    return parse_document(data, PackageLock, str(path))
