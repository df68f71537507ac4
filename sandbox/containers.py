"""podman's and Docker's command lines for a policy. Both read the same options; where they differ stands here."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from protocol.errors import ConfigError
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
    """The command that runs `argv` in a new container. Raises ConfigError for an image without a digest."""
    check_image(box.image)
    return [engine.value, "run", *_options(engine, policy, box), f"--entrypoint={argv[0]}", box.image, *argv[1:]]


def check_image(image: str) -> None:
    """Raise ConfigError unless an image is named by its digest: a tag may mean another image tomorrow."""
    if not DIGEST.fullmatch(image):
        what = f"the image {image!r} is not named by its digest" if image else "no image is named"
        raise ConfigError(what, "write NAME@sha256:… or sha256:… (podman images --digests --no-trunc)")


def removal(engine: Mode, name: str) -> list[str]:
    """The command that ends a container and removes it; it succeeds when there is none."""
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
