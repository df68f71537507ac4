"""podman's and Docker's command lines for a policy. Both read the same options; where they differ stands here."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from protocol.errors import ConfigError
from protocol.files import explained, user_cache, write_atomic
from sandbox.bubblewrap import AF_ALG, AF_VSOCK, DENIED, NEW_NAMESPACES
from sandbox.policy import DIGEST, IsolationPolicy, Mode, Mount, NetworkAccess

_GPU = {Mode.PODMAN: "--device=nvidia.com/gpu=all", Mode.DOCKER: "--gpus=all"}
_TMP = "rw,nosuid,nodev,mode=1777"


@dataclass(frozen=True)
class Container:
    """`image`: one that is on this machine, by its digest; `seccomp`: a filter of system calls instead of the engine's
    own."""

    name: str
    image: str
    seccomp: Path | None = None


def container_command(engine: Mode, policy: IsolationPolicy, argv: Sequence[str], box: Container) -> list[str]:
    """Return the command that runs `argv` in a new container. Raise ConfigError for an image without a digest."""
    check_image(box.image)
    return [engine.value, "run", *_options(engine, policy, box), f"--entrypoint={argv[0]}", box.image, *argv[1:]]


def check_image(image: str) -> None:
    """Raise ConfigError unless an image is named by its digest: a tag may mean another image tomorrow."""
    if not DIGEST.fullmatch(image):
        what = f"the image {image!r} is not named by its digest" if image else "no image is named"
        raise ConfigError(what, "write NAME@sha256:… or sha256:… (podman images --digests --no-trunc)")


def removal(engine: Mode, name: str) -> list[str]:
    """Return the command that ends a container and removes it; it succeeds when there is none."""
    return [engine.value, "rm", "--force", *(["--time=0"] if engine is Mode.PODMAN else []), name]


def _options(engine: Mode, policy: IsolationPolicy, box: Container) -> Iterator[str]:
    yield from (f"--name={box.name}", "--rm", "--interactive", "--pull=never", "--log-driver=none")
    yield from ("--read-only", "--cap-drop=all", "--security-opt=no-new-privileges", "--ipc=private")
    if engine is Mode.PODMAN:
        yield from ("--read-only-tmpfs=false", "--image-volume=ignore", "--http-proxy=false")
    if box.seccomp is not None:
        yield f"--security-opt=seccomp={box.seccomp}"
    if policy.network is not NetworkAccess.OUTBOUND:
        yield f"--network={policy.network.value}"
    yield from _limits(policy)
    if policy.user is not None:
        yield f"--user={policy.user}:{policy.user}"
    for mount in policy.mounts:
        yield _mount(mount)
    for device in policy.devices:
        yield f"--device={device}"
    if policy.gpu:
        yield _GPU[engine]
    for variable, value in policy.environment.items():
        yield f"--env={variable}={value}"
    yield f"--workdir={policy.folder}"


def _limits(policy: IsolationPolicy) -> Iterator[str]:
    # Said in full, also where they are an engine's defaults: those may be more than the machine lets anybody set.
    yield f"--ulimit=nofile={policy.open_files}:{policy.open_files}"
    yield f"--ulimit=nproc={policy.processes}:{policy.processes}"
    yield "--ulimit=core=0:0"
    yield f"--pids-limit={policy.processes}"
    if policy.memory is not None:
        yield from (f"--memory={policy.memory}", f"--memory-swap={policy.memory}")
    if policy.cpus is not None:
        yield f"--cpus={policy.cpus:g}"
    yield f"--tmpfs=/tmp:{_TMP},size={policy.scratch}"
    yield f"--shm-size={policy.scratch}"


def _mount(mount: Mount) -> str:
    return f"--mount=type=bind,source={mount.source},target={mount.target}" + ("" if mount.writable else ",readonly")


# podman's default filter of system calls lets programs make user namespaces and reach hypervisors; this narrows it


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
    """Return all families but two: one rule can compare an argument once only."""
    ranges = (("SCMP_CMP_LT", AF_ALG), ("SCMP_CMP_EQ", AF_ALG + 1), ("SCMP_CMP_GT", AF_VSOCK))
    return [_allow("socket", {"index": 0, "value": family, "valueTwo": 0, "op": op}) for op, family in ranges]


def _allow(name: str, condition: dict[str, Any]) -> dict[str, Any]:
    return {"names": [name], "action": _ALLOW, "args": [condition], "includes": {}, "excludes": {}}


@cache
def profile_file() -> Path:
    """Return the narrowed form of this machine's default filter, in the user's cache. Raise ConfigError without one."""
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
