"""Object keys are content addresses (docs/reference/protocol.md, section 1): a stranger cannot choose anything in
them."""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast, get_args

from protocol.encoding import canonical_json, keccak, parse_json
from protocol.errors import ConfigError, IntegrityError, MusterError

Kind = Literal[
    "rollouts", "shards", "manifests", "verdicts", "configs", "environments", "envelopes", "contributions", "outer"
]
_SUFFIX: dict[Kind, str] = dict.fromkeys(get_args(Kind), "") | {"rollouts": ".parquet"}
_SUFFIX |= dict.fromkeys(("manifests", "verdicts", "configs", "envelopes"), ".json")
# What a whole key matches.
KEY_PATTERN = "|".join(f"{kind}/[0-9a-f]{{64}}{re.escape(suffix)}" for kind, suffix in _SUFFIX.items())
_KEY = re.compile(KEY_PATTERN)
_DOCUMENT_PATH = re.compile(
    r"diloco/[0-9a-f]{64}/(log|messages/0x[0-9a-f]{40})/[0-9]{10}|envelopes/0x[0-9a-f]{40}/[0-9a-f]{64}\.json"
)


class MissingObjectError(MusterError):
    """No object of that key (yet)."""


@dataclass(frozen=True)
class ObjectKey:
    """`kind` and the 32-byte digest that the key's text carries."""

    kind: Kind
    digest: bytes

    @property
    def is_sha256(self) -> bool:
        """Whether the digest is the SHA-256 of the object's bytes as they are."""
        return self.kind not in ("verdicts", "manifests")

    def __str__(self) -> str:
        return f"{self.kind}/{self.digest.hex()}{_SUFFIX[self.kind]}"


def object_key(kind: Kind, digest: bytes) -> str:
    """Return the key of an object: `kind` and its 32-byte digest (SHA-256, for verdicts keccak256)."""
    if len(digest) != 32:
        raise ValueError(f"a digest has 32 bytes, not {len(digest)}")
    return str(ObjectKey(kind, digest))


def parse_key(text: str) -> ObjectKey:
    """Parse a key from a stranger. Raises ConfigError unless it is exactly a content address of a known kind."""
    if len(text) > 100 or not _KEY.fullmatch(text):
        hint = "use <kind>/<64 hex digits> of docs/reference/protocol.md section 1"
        raise ConfigError(f"{text[:100]!r} is not an object key", hint)
    kind, _, rest = text.partition("/")
    return ObjectKey(cast(Kind, kind), bytes.fromhex(rest[:64]))


def check_document_path(text: str) -> str:
    """Return the path of a signed document. Raises ConfigError for anything but an entry of a DiLoCo run's log, a
    worker's message, or a swarm member's envelope."""
    if len(text) > 160 or not _DOCUMENT_PATH.fullmatch(text):
        hint = "use a path of docs/reference/protocol.md section 1"
        raise ConfigError(f"{text[:160]!r} is not the path of a signed document", hint)
    return text


def check_content(key: str, data: bytes) -> None:
    """Raise IntegrityError unless `data` is what `key` names.

    A manifest's key is the SHA-256 of the canonical manifest inside the stored {manifest, signature}.
    """
    kind = parse_key(key).kind
    if kind == "verdicts":
        return _check_digest(key, keccak(data))
    if kind == "manifests":
        try:
            data = canonical_json(parse_json(data)["manifest"])
        except (ValueError, KeyError, TypeError):
            data = b""
    _check_digest(key, hashlib.sha256(data).digest())


def check_sha256(key: str, actual: bytes, read: Callable[[], bytes]) -> None:
    """The same of an object whose bytes have the SHA-256 `actual`; `read` gives them where that does not say all."""
    if parse_key(key).is_sha256:
        _check_digest(key, actual)
    else:
        check_content(key, read())


def _check_digest(key: str, actual: bytes) -> None:
    if actual != parse_key(key).digest:
        what = f"{key} holds bytes of another hash ({actual.hex()[:16]}…)"
        raise IntegrityError(what, "fetch it from another source")
