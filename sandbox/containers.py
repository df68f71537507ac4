"""podman's and Docker's command lines for a policy. Both read the same options, with the exceptions here."""

import hashlib
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from protocol.errors import ConfigError
from protocol.files import explained, user_cache, write_atomic
from sandbox.bubblewrap import AF_ALG, AF_VSOCK, DENIED, NEW_NAMESPACES
from sandbox.policy import DIGEST, IsolationPolicy, Mode, NetworkAccess


def check_image(image: str) -> None:
    """Raise ConfigError unless an image is named by its digest: a tag may mean another image tomorrow."""
    if not DIGEST.fullmatch(image):
        what = f"the image {image!r} is not named by its digest" if image else "no image is named"
        raise ConfigError(what, "write NAME@sha256:… or sha256:… (podman images --digests --no-trunc)")


def removal(engine: Mode, name: str) -> list[str]:
    """Return the command that ends a container and removes it; it succeeds when there is none."""
    return [engine.value, "rm", "--force", *(["--time=0"] if engine is Mode.PODMAN else []), name]


def container_command(
    engine: Mode, policy: IsolationPolicy, argv: Sequence[str], name: str, image: str, seccomp: Path | None = None
) -> list[str]:
    """Return the command that runs `argv` in a container. Raise ConfigError for an image without a digest."""
    check_image(image)
    command = [engine.value, "run", f"--name={name}", "--rm", "--interactive", "--pull=never", "--log-driver=none"]
    command += ["--read-only", "--cap-drop=all", "--security-opt=no-new-privileges", "--ipc=private"]
    if engine is Mode.PODMAN:
        command += ["--read-only-tmpfs=false", "--image-volume=ignore", "--http-proxy=false"]
    if seccomp is not None:
        command.append(f"--security-opt=seccomp={seccomp}")
    if policy.network is not NetworkAccess.OUTBOUND:
        command.append(f"--network={policy.network.value}")
    # In full, also where they are an engine's defaults: those may exceed what the machine lets anybody set.
    command.append(f"--ulimit=nofile={policy.open_files}:{policy.open_files}")
    command += [f"--ulimit=nproc={policy.processes}:{policy.processes}", "--ulimit=core=0:0"]
    command.append(f"--pids-limit={policy.processes}")
    if policy.memory is not None:
        command += [f"--memory={policy.memory}", f"--memory-swap={policy.memory}"]
    command.append(f"--tmpfs=/tmp:rw,nosuid,nodev,mode=1777,size={policy.scratch}")
    command.append(f"--shm-size={policy.scratch}")
    if policy.user is not None:
        command.append(f"--user={policy.user}:{policy.user}")
    for mount in policy.mounts:
        option = f"--mount=type=bind,source={mount.source},target={mount.target}"
        command.append(option if mount.writable else f"{option},readonly")
    if policy.gpu:
        command.append("--device=nvidia.com/gpu=all" if engine is Mode.PODMAN else "--gpus=all")
    command += [f"--env={variable}={value}" for variable, value in policy.environment.items()]
    return [*command, f"--workdir={policy.folder}", f"--entrypoint={argv[0]}", image, *argv[1:]]


# podman's default filter of system calls lets programs make user namespaces and reach hypervisors; this narrows it


_DEFAULTS = (Path("/etc/containers/seccomp.json"), Path("/usr/share/containers/seccomp.json"))


def narrowed(profile: dict[str, Any]) -> dict[str, Any]:
    """Return Docker's and podman's filter without what bubblewrap's programs cannot do either."""
    replaced = {*DENIED, "clone", "clone3", "socket"}
    rules = [rule | {"names": [name for name in rule["names"] if name not in replaced]} for rule in profile["syscalls"]]
    conditions = [("clone", "SCMP_CMP_MASKED_EQ", sum(NEW_NAMESPACES))]
    # all families but two: one rule can compare an argument once only
    families = (("SCMP_CMP_LT", AF_ALG), ("SCMP_CMP_EQ", AF_ALG + 1), ("SCMP_CMP_GT", AF_VSOCK))
    conditions += [("socket", operator, family) for operator, family in families]
    allowed = [
        {"names": [name], "action": "SCMP_ACT_ALLOW", "includes": {}, "excludes": {},
         "args": [{"index": 0, "value": value, "valueTwo": 0, "op": operator}]}
        for name, operator, value in conditions
    ]  # fmt: skip
    return profile | {"syscalls": [*(rule for rule in rules if rule["names"]), *allowed]}


@cache
def profile_file() -> Path:
    """Return the narrowed form of this machine's default filter, in the user's cache. Raise ConfigError without one."""
    default = next((path for path in _DEFAULTS if path.is_file()), None)
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
