"""podman's filter of system calls, narrowed: its default one lets programs make user namespaces and reach hypervisors.

Docker's default filter forbids both by itself.
"""

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from protocol.errors import ConfigError
from protocol.files import explained, user_cache, write_atomic
from sandbox.seccomp import AF_ALG, AF_VSOCK, DENIED, NEW_NAMESPACES

DEFAULTS = (Path("/etc/containers/seccomp.json"), Path("/usr/share/containers/seccomp.json"))
_ALLOW = "SCMP_ACT_ALLOW"


def narrowed(profile: dict[str, Any]) -> dict[str, Any]:
    """`profile`, whose form is that of Docker's and podman's filters, without what bubblewrap's programs cannot do
    either. Its other rules stay; what it does not name fails with its default error."""
    replaced = {*DENIED, "clone", "clone3", "socket"}
    rules = [rule | {"names": [name for name in rule["names"] if name not in replaced]} for rule in profile["syscalls"]]
    mask = {"index": 0, "value": sum(NEW_NAMESPACES), "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}
    return profile | {"syscalls": [*(rule for rule in rules if rule["names"]), _allow("clone", mask), *_sockets()]}


def _sockets() -> list[dict[str, Any]]:
    """All families but two: one rule can compare an argument once only."""
    ranges = (("SCMP_CMP_LT", AF_ALG), ("SCMP_CMP_EQ", AF_ALG + 1), ("SCMP_CMP_GT", AF_VSOCK))
    return [_allow("socket", {"index": 0, "value": family, "valueTwo": 0, "op": op}) for op, family in ranges]


def _allow(name: str, condition: dict[str, Any]) -> dict[str, Any]:
    return {"names": [name], "action": _ALLOW, "args": [condition], "includes": {}, "excludes": {}}


@cache
def profile_file() -> Path:
    """The narrowed form of this machine's default filter, in the user's cache. Raises ConfigError without one."""
    default = next((path for path in DEFAULTS if path.is_file()), None)
    if default is None:
        raise ConfigError("podman's default filter of system calls is missing", "install containers-common")
    try:
        data = json.dumps(narrowed(json.loads(default.read_bytes())), indent=1).encode()
    except (KeyError, TypeError, ValueError):
        raise ConfigError(f"{default} is not a filter of system calls", "install containers-common again") from None
    path = user_cache("isolation") / f"seccomp-{hashlib.sha256(data).hexdigest()[:16]}.json"
    with explained(f"write {path}", "check the folder"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, data)
    return path
