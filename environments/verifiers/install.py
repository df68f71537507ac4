"""What a package of the `verifiers` library is, to the byte: a document whose hash a pool's configuration names."""

import json
import logging
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Self
from urllib.parse import unquote, urlsplit

from filelock import FileLock
from pydantic import Field, model_validator

from environments.base import read_content
from protocol.encoding import Document, canonical_json, parse_document, parse_json, sha256_hex
from protocol.errors import ConfigError, ScoringUnavailable, printable
from protocol.files import explained, file_sha256, user_cache, write_atomic

MAX_LOCK_BYTES = 1 << 20
MAX_ROWS = 1 << 17
_HASH = r"^[0-9a-f]{64}$"
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"


class LockedWheel(Document):
    """One distribution. `carried`: no index has it, it travels in the pool's bucket by its hash, as `file`."""

    name: str = Field(pattern=_NAME)
    version: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+!-]{0,99}$")
    sha256: str = Field(pattern=_HASH)
    file: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,199}\.whl$")
    carried: bool = False


class PackageLock(Document):
    """`load`: a module, or `module:callable`, called with `arguments`; `split`: which of its datasets. `library`:
    version of verifiers. `python` and `machine`: where these wheels run. `data`: SHA-256 over the first 16 bytes of the
    SHA-256 of each row, then of its most turns and its tools if it has several or some."""

    format: Literal["muster/verifiers/1"] = "muster/verifiers/1"
    package: str = Field(max_length=200)
    load: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,199}(:[A-Za-z_][A-Za-z0-9_]{0,99})?$")
    arguments: dict[str, Any] = Field(default_factory=dict)
    split: Literal["train", "eval"] = "train"
    library: str = Field(max_length=40)
    licence: str = Field("unknown", max_length=100)
    python: str = Field(pattern=r"^3\.\d{1,2}$")
    machine: str = Field(max_length=40)
    wheels: tuple[LockedWheel, ...] = Field(min_length=1, max_length=1000)
    rows: int = Field(ge=1, le=MAX_ROWS)
    data: str = Field(pattern=_HASH)

    @model_validator(mode="after")
    def _one_each(self) -> Self:
        names = [_plain(wheel.name) for wheel in self.wheels]
        if len(set(names)) < len(names):
            raise ValueError("it has a package twice")
        return self

    @property
    def content(self) -> str:
        """Hex SHA-256 of the document."""
        return sha256_hex(self.document)

    @property
    def document(self) -> bytes:
        return canonical_json(self.model_dump(mode="json")) + b"\n"

    @property
    def carried(self) -> list[str]:
        """The hashes of the wheels that no index has."""
        return [wheel.sha256 for wheel in self.wheels if wheel.carried]

    @property
    def installation(self) -> str:
        """Hex SHA-256 of what is installed, whatever is loaded of it."""
        lines = [self.python, self.machine, *sorted(f"{wheel.file} {wheel.sha256}" for wheel in self.wheels)]
        return sha256_hex("\n".join(lines).encode())


def _plain(name: str) -> str:
    """Return a package's name in the one spelling that indexes compare."""
    return re.sub(r"[-_.]+", "-", name).lower()


def this_python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def this_machine() -> str:
    return f"{platform.system()}-{platform.machine()}".lower()


def read_lock(path: Path, content: str) -> PackageLock:
    """Return the lock in a file. Raise ConfigError where it is missing or is none, IntegrityError for other bytes."""
    return parse_document(read_content(path, content, MAX_LOCK_BYTES, "lock of a package"), PackageLock, str(path))


# Installation: only wheels, because unpacking one runs none of its code; muster's own packages are never touched


INSTALL_SECONDS = 3600.0
_WHEELS_ONLY = "--only-binary=:all:"
# Libraries tell by this name what is installed: of other modules `datasets` would hash everything they hold.
_SITE = "site-packages"
_log = logging.getLogger(__name__)


def installed(lock: PackageLock, carried: Path) -> Path:
    """Return the folder with what a package needs, made where it is missing. Raise ConfigError, ScoringUnavailable."""
    here = this_python(), this_machine()
    if (lock.python, lock.machine) != here:
        what = f"{lock.package} is locked for Python {lock.python} on {lock.machine}; this is {here[0]} on {here[1]}"
        raise ConfigError(what, "run muster with that Python, or let the pool's owner lock it again")
    folder = user_cache("packages") / lock.installation
    if (folder / "whole").is_file():
        return folder / _SITE
    with explained(f"write {folder}", "check the folder and the room on its disk, or set XDG_CACHE_HOME"):
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "lock", timeout=INSTALL_SECONDS):
            if not (folder / "whole").is_file():
                _log.info("installing %s and %d packages: minutes, once", lock.package, len(lock.wheels))
                _install(lock, folder, carried)
    return folder / _SITE


def resolve(requirement: str, wheels: Sequence[Path], build: bool, keep: Path) -> tuple[LockedWheel, ...]:
    """Return what a requirement comes to on this machine; what is carried is put into `keep` by its hash. `wheels`:
    files that no index has; `build`: make wheels too, which runs code of theirs. Raise ConfigError."""
    options = [] if build else [_WHEELS_ONLY]
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        files = [str(wheel.resolve()) for wheel in wheels]
        wanted = files if requirement in map(wheel_requirement, wheels) else [requirement, *files]
        about = ["--dry-run", "--ignore-installed", "--report", str(report)]
        hint = "check its name and version" + ("" if build else "; --build makes wheels of what has none")
        _pip(["install", *about, *options, *wanted], f"resolve {requirement}", hint)
        resolved = parse_json(report.read_bytes())["install"]
        local = {str(wheel.resolve()): wheel for wheel in wheels}
        return tuple(_locked(distribution, local, keep, Path(folder)) for distribution in resolved)


def wheel_requirement(path: Path) -> str:
    """Return NAME==VERSION of a wheel, by its file name. Raise ConfigError."""
    parts = path.name.removesuffix(".whl").split("-")
    if path.suffix != ".whl" or not path.is_file() or len(parts) < 5:
        raise ConfigError(f"{path} is no wheel", "build one: python -m build --wheel")
    return f"{parts[0]}=={parts[1]}"


def _locked(distribution: Mapping[str, Any], local: Mapping[str, Path], keep: Path, folder: Path) -> LockedWheel:
    name, version = distribution["metadata"]["name"], distribution["metadata"]["version"]
    about = distribution["download_info"]
    archive = about.get("archive_info", {})
    # pip before 23.1 has `hash` instead of `hashes`, and neither of a local file
    sha256 = str(archive.get("hashes", {}).get("sha256") or archive.get("hash", "").partition("sha256=")[2])
    url = urlsplit(about["url"])
    file = unquote(url.path.rsplit("/", 1)[-1])
    path = local.get(unquote(url.path)) if url.scheme == "file" else None
    if not file.endswith(".whl"):
        _pip(["wheel", "--no-deps", "--wheel-dir", str(folder), f"{name}=={version}"], f"build {name}", "see its error")
        (path,) = (wheel for wheel in folder.glob("*.whl") if _plain(wheel.name.split("-")[0]) == _plain(name))
    if path is not None:
        sha256, file = file_sha256(path), path.name
        write_atomic(keep / sha256, path.read_bytes())
    elif not sha256:
        raise ConfigError(f"pip reports no SHA-256 of {file}", "upgrade pip to 23.1 or newer, or name a wheel file")
    return LockedWheel(name=name, version=version, sha256=sha256, file=file, carried=path is not None)


def _install(lock: PackageLock, folder: Path, carried: Path) -> None:
    """Install into `site-packages` by way of another folder, so that it is there as a whole or not at all."""
    with TemporaryDirectory(dir=folder) as scratch:
        wheels, site, wanted = (Path(scratch) / name for name in ("wheels", _SITE, "wanted.txt"))
        wheels.mkdir()
        lines = []
        for wheel in lock.wheels:
            requirement = f"{wheel.name}=={wheel.version}"
            if wheel.carried:  # by its file: an index may have another of that name and version
                source = carried / wheel.sha256
                if not source.is_file() or file_sha256(source) != wheel.sha256:
                    raise ConfigError(f"the wheel {wheel.file} is not {source}", "fetch the pool's files again")
                shutil.copyfile(source, wheels / wheel.file)
                requirement = f"{wheel.name} @ {(wheels / wheel.file).as_uri()}"
            lines.append(f"{requirement} --hash=sha256:{wheel.sha256}\n")
        wanted.write_text("".join(lines))
        options = ["--no-deps", "--require-hashes", _WHEELS_ONLY, "--target", str(site), "--requirement", str(wanted)]
        try:
            _pip(["install", *options], f"install {lock.package}", "check the network and the package index")
        except ConfigError as error:
            raise ScoringUnavailable(error.what, error.hint) from None
        shutil.rmtree(folder / _SITE, ignore_errors=True)
        site.rename(folder / _SITE)
    write_atomic(folder / "whole", json.dumps([wheel.file for wheel in lock.wheels]).encode())


def _pip(arguments: list[str], what: str, hint: str) -> None:
    """Run pip as this user, with this machine's settings. Raise ConfigError."""
    argv = [sys.executable, "-m", "pip", *arguments, "--no-input", "--disable-pip-version-check", "--quiet"]
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    try:
        done = subprocess.run(argv, env=env, capture_output=True, timeout=INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise ConfigError(f"cannot {what}: not done in {INSTALL_SECONDS:.0f} s", "try again") from None
    if done.returncode:
        errors = [line for line in done.stderr.decode(errors="replace").splitlines() if line.startswith("ERROR")]
        raise ConfigError(f"cannot {what}: {printable(' '.join(errors) or 'pip ended', 500)}", hint)
