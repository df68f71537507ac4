"""Policies as command lines, compared in full: every option there, and no other."""

import shlex
from pathlib import Path

import pytest
from pydantic import ValidationError

from protocol.errors import ConfigError
from sandbox.bubblewrap import HostView, bubblewrap_command
from sandbox.containers import container_command, removal
from sandbox.policy import MIB, IsolationPolicy, Mode, Mount, NetworkAccess

DIGEST = "sha256:" + "ab" * 32
ARGV = ["python3", "-c", "print(1)"]
STRANGERS = IsolationPolicy(user=65534)
EVERYTHING = IsolationPolicy(
    network=NetworkAccess.HOST,
    memory=512 * MIB,
    processes=64,
    open_files=128,
    scratch=32 * MIB,
    mounts=(Mount(source=Path("/srv/data"), target=Path("/data/in")), Mount.same(Path("/srv/home"), writable=True)),
    gpu=True,
    environment={"NAME": "two words"},
    folder=Path("/srv/home"),
)
VIEW = HostView((Mount.same(Path("/usr")),), {Path("/bin"): "usr/bin"}, (Path("/dev/nvidia0"),))

CONTAINER = """run --name=box --rm --interactive --pull=never --log-driver=none --read-only --cap-drop=all
--security-opt=no-new-privileges --ipc=private"""
PODMAN = "--read-only-tmpfs=false --image-volume=ignore --http-proxy=false"
COUNTS = "--ulimit=nofile=128:128 --ulimit=nproc=64:64 --ulimit=core=0:0 --pids-limit=64"
MEMORY = "--memory=536870912 --memory-swap=536870912"
FILES = """--tmpfs=/tmp:rw,nosuid,nodev,mode=1777,size=33554432 --shm-size=33554432
--mount=type=bind,source=/srv/data,target=/data/in,readonly --mount=type=bind,source=/srv/home,target=/srv/home"""
RUN = f"--env='NAME=two words' --workdir=/srv/home --entrypoint=python3 {DIGEST} -c 'print(1)'"


def test_strangers_code_in_podman() -> None:
    made = container_command(Mode.PODMAN, STRANGERS, ARGV, "box", DIGEST, Path("/filter.json"))
    assert made == shlex.split(f"""podman {CONTAINER} {PODMAN} --security-opt=seccomp=/filter.json --network=none
        --ulimit=nofile=1024:1024 --ulimit=nproc=256:256 --ulimit=core=0:0 --pids-limit=256
        --memory=1073741824 --memory-swap=1073741824
        --tmpfs=/tmp:rw,nosuid,nodev,mode=1777,size=268435456 --shm-size=268435456
        --user=65534:65534 --workdir=/tmp --entrypoint=python3 {DIGEST} -c 'print(1)'""")


def test_every_option_in_docker() -> None:
    made = container_command(Mode.DOCKER, EVERYTHING, ARGV, "box", f"name@{DIGEST}")
    run = RUN.replace(DIGEST, f"name@{DIGEST}")
    assert made == shlex.split(f"docker {CONTAINER} --network=host {COUNTS} {MEMORY} {FILES} --gpus=all {run}")


def test_podmans_gpu_and_own_network() -> None:
    policy = EVERYTHING.model_copy(update={"network": NetworkAccess.OUTBOUND, "memory": None})
    made = container_command(Mode.PODMAN, policy, ARGV, "box", DIGEST)
    expected = f"podman {CONTAINER} {PODMAN} {COUNTS} {FILES} --device=nvidia.com/gpu=all {RUN}"
    assert made == shlex.split(expected)


def test_how_a_container_is_removed() -> None:
    assert removal(Mode.PODMAN, "box") == ["podman", "rm", "--force", "--time=0", "box"]
    assert removal(Mode.DOCKER, "box") == ["docker", "rm", "--force", "box"]


@pytest.mark.parametrize("image", ["", "python", "python:3.11", "sha256:12", f"--privileged@{DIGEST}", f"{DIGEST} x"])
def test_an_image_has_a_digest(image: str) -> None:
    with pytest.raises(ConfigError, match=r"digest|no image"):
        container_command(Mode.PODMAN, STRANGERS, ARGV, "box", image)


BWRAP = """bwrap --unshare-pid --unshare-ipc --unshare-uts --unshare-cgroup-try --die-with-parent --new-session
--cap-drop ALL --clearenv"""
SYSTEM = "--symlink usr/bin /bin --proc /proc --remount-ro /proc --dev /dev"


def scratch(size: int) -> str:
    return f"""--remount-ro /dev --perms 1777 --size {size} --tmpfs /dev/shm
        --perms 1777 --size {size} --tmpfs /tmp"""


def test_strangers_code_in_bubblewrap() -> None:
    assert bubblewrap_command(STRANGERS, ARGV, VIEW, seccomp=3, info=4) == shlex.split(f"""{BWRAP}
        --cap-add CAP_SETUID --cap-add CAP_SETGID --cap-add CAP_SETPCAP --unshare-net --seccomp 3 --info-fd 4
        --setenv PATH /usr/local/bin:/usr/bin:/bin {SYSTEM} {scratch(256 * MIB)}
        --ro-bind /usr /usr --remount-ro / --chdir /tmp --
        setpriv --reuid=65534 --regid=65534 --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs --
        prlimit --nofile=1024 --nproc=256 --core=0 --data=1073741824 --fsize=1073741824 -- python3 -c 'print(1)'""")


def test_every_option_in_bubblewrap() -> None:
    assert bubblewrap_command(EVERYTHING, ARGV, VIEW, seccomp=3, info=4) == shlex.split(f"""{BWRAP}
        --unshare-user --disable-userns --seccomp 3 --info-fd 4
        --setenv PATH /usr/local/bin:/usr/bin:/bin --setenv NAME 'two words'
        {SYSTEM} --dev-bind /dev/nvidia0 /dev/nvidia0 {scratch(32 * MIB)}
        --perms 0755 --dir /data --perms 0755 --dir /srv
        --ro-bind /usr /usr --ro-bind /srv/data /data/in --bind /srv/home /srv/home --remount-ro / --chdir /srv/home --
        prlimit --nofile=128 --nproc=64 --core=0 --data=536870912 -- python3 -c 'print(1)'""")


def test_without_a_limit_of_memory_none_is_set() -> None:
    policy = STRANGERS.model_copy(update={"memory": None, "user": None})
    made = bubblewrap_command(policy, ARGV, VIEW, seccomp=3, info=4)
    assert made[-len(ARGV) - 5 :] == ["prlimit", "--nofile=1024", "--nproc=256", "--core=0", "--", *ARGV]


@pytest.mark.parametrize(
    "path", ["relative", "/a/../b", "/a:/b", "/a,readonly=false", '/a"b', "/a\nb"], ids=lambda one: one.strip()
)
def test_a_mount_cannot_smuggle_an_option(path: str) -> None:
    with pytest.raises(ValidationError, match="absolute path without"):
        Mount.same(Path(path))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("environment", wrong) for wrong in ({"A=B": "x"}, {"A": "x\nB=y"}, {"A": "x\0"})),
        *(("memory", 1), ("processes", 0), ("scratch", 600 * MIB), ("user", 0), ("seconds", float("inf"))),
        ("unknown", 1),
    ],
)
def test_a_policy_that_means_nothing_is_refused(field: str, value: object) -> None:
    with pytest.raises(ValidationError):
        IsolationPolicy.model_validate({field: value})
