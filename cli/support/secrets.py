"""Secrets in text: taking them out, and finding what is left. Two independent passes: what the first one misses, the
second one refuses."""

import base64
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from urllib.parse import quote

REMOVED = "[removed]"
_SHORTEST = 6
"""Known secrets below this length would also be found in ordinary text."""
_NAMED = r"(?:pass(?:word|phrase|wd)?|pwd|secret|private|mnemonic|seed_?phrase|credential|token|api_?key|access_?key)"
_SECRET_NAME = re.compile(_NAMED, re.IGNORECASE)
_VALUE = r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s,;&}\]]+)"""


def _without_value(found: re.Match[str]) -> str:
    """`name: value` with the quotes that it had, so that JSON stays JSON."""
    quote_mark = found[2][0] if found[2][0] in "\"'" else ""
    return f"{found[1]}{quote_mark}{REMOVED}{quote_mark}"


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
    """Values that must be nowhere: of environment variables whose names speak of a secret, and lines of password files;
    as they are, and as base64, hex and percent-encoding write them. The longest first."""
    plain = {value for name, value in environment.items() if _SECRET_NAME.search(name) and not os.path.exists(value)}
    for path in files:
        try:
            plain.update(line.strip() for line in path.read_text(errors="replace").splitlines())
        except OSError:
            continue
    found: set[str] = set()
    for value in (one for one in plain if len(one) >= _SHORTEST):
        data = value.encode(errors="replace")
        found |= {value, base64.b64encode(data).decode().rstrip("="), data.hex(), quote(value, safe="")}
    return sorted(found, key=len, reverse=True)


def removed(text: str, known: Iterable[str] = ()) -> str:
    """The text without secrets: the known ones, and what looks like one."""
    for secret in known:
        text = text.replace(secret, REMOVED)
    for pattern, instead in _CUTS:
        text = pattern.sub(instead, text)
    return text


def remaining(text: str, known: Iterable[str] = ()) -> list[str]:
    """What kinds of secrets are (still) in the text, with the line each is in; never the secret itself."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        kinds = [kind for kind, pattern in _REMAINS if pattern.search(line)]
        if any(secret in line for secret in known):
            kinds.append("a value of a secret file or environment variable")
        found += [f"line {number} holds {kind}" for kind in dict.fromkeys(kinds)]
    return found
