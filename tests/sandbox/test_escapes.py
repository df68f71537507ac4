"""Whatever a mode claims, the escape suite fails in it; the same suite succeeds without isolation."""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from protocol.waits import wait_for
from sandbox import launch as launching
from sandbox.bubblewrap import python_mounts
from sandbox.launch import TIMED_OUT, IsolatedProcess, Launch
from sandbox.policy import MIB, NOBODY, IsolationPolicy, Mode, Mount
from tests.sandbox.conftest import SUITE, need
from tests.sandbox.escapes.attempts import ATTEMPTS, DEVICES, HARMLESS, PRIVILEGE, TOGETHER, Attempt

MEMORY = 160 * MIB
ROOT = os.geteuid() == 0


@dataclass(frozen=True)
class Variant:
    """A mode as it is tried: `user` as in a policy; `accounting`: whether cgroups can be made."""

    mode: Mode
    user: int | None = NOBODY if ROOT else None
    accounting: bool = True

    @property
    def name(self) -> str:
        words = [self.mode.value, "" if self.user else "same-user", "" if self.accounting else "without-cgroup"]
        return "-".join(filter(None, words))


VARIANTS = [Variant(Mode.PODMAN), Variant(Mode.PODMAN, user=None), Variant(Mode.DOCKER)]
VARIANTS += [Variant(Mode.BUBBLEWRAP), Variant(Mode.BUBBLEWRAP, user=None), Variant(Mode.BUBBLEWRAP, accounting=False)]
UNCLAIMED = {
    VARIANTS[-1]: {one.__name__ for one in TOGETHER},
    # what stands in for Docker's daemon here has podman's default filter, not Docker's
    Variant(Mode.DOCKER): {"hypervisor_socket", "a_user_namespace"},
}
each_mode = pytest.mark.parametrize("variant", VARIANTS, ids=lambda one: one.name)
Start = Callable[..., IsolatedProcess]


@contextmanager
def planted(folder: Path) -> Iterator[dict[str, Any]]:
    """Under `folder`; what the suite is told of it. A `writable` and a `read_only` folder are there to be mounted."""
    token, victims = f"planted-{secrets.token_hex(8)}", f"victim-{secrets.token_hex(8)}"
    for name in ("writable", "read_only", "home"):
        (folder / name).mkdir(mode=0o777)
        (folder / name).chmod(0o777)
    secret = folder / "home" / "secret"
    secret.write_text(token)
    secret.chmod(0o644)  # file permissions are not what protects it
    with ExitStack() as stack:
        argv = [sys.executable, "-S", "-m", "escapes", "--rest", victims]
        victim = subprocess.Popen(argv, cwd=SUITE.parent, stdout=subprocess.DEVNULL)
        stack.callback(victim.wait)
        stack.callback(victim.kill)
        listeners = [_listener(("127.0.0.1", 0)), _listener(("0.0.0.0", 0)), _listener(f"\0{token}")]
        answering = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        answering.bind(("127.0.0.1", 0))
        for service in (*listeners, answering):
            stack.callback(service.close)
            threading.Thread(target=_serve, args=(service,), daemon=True).start()
        yield {
            "token": token,
            "tcp": listeners[0].getsockname()[1],
            "tcp_everywhere": listeners[1].getsockname()[1],
            "udp": answering.getsockname()[1],
            "abstract": token,
            "address": _own_address(),
            "secret": str(secret),
            "shadow": text_of(Path("/etc/shadow")),
            "beside": str(folder / "beside"),
            "read_only": str(folder / "read_only"),
            "writable": [str(folder / "writable"), "/tmp", "/dev/shm", "/proc", "/sys"],
            "victim": victim.pid,
            "victim_backwards": victims[::-1],
            "init_environment": text_of(Path("/proc/1/environ")),
        }


def _listener(address: Any) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
    listener.bind(address)
    listener.listen()
    return listener


def _serve(service: socket.socket) -> None:
    """Greet whoever comes, until it is closed."""
    with suppress(OSError):
        while True:
            if service.type == socket.SOCK_DGRAM:
                service.sendto(b"here I am", service.recvfrom(64)[1])
            else:
                connection, _ = service.accept()
                with connection:
                    connection.sendall(b"here I am")


def _own_address() -> str:
    """Of the interface that leads outside; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        with suppress(OSError):
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
    return "127.0.0.1"


def text_of(path: Path) -> str:
    """What a file holds; empty if it cannot be read."""
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""


def running(token: str) -> list[int]:
    """The processes with a word in their command line, without our own."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if token.encode() in path.read_bytes() and int(path.parent.name) != os.getpid():
                found.append(int(path.parent.name))
    return found


def _no_cgroup(_: object) -> None:
    raise PermissionError


@pytest.fixture
def start(request: pytest.FixtureRequest, suite: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Starts the escape suite with some arguments in a variant of a mode."""

    def begin(variant: Variant, *arguments: str, mounts: tuple[Mount, ...] = (), **policy: Any) -> IsolatedProcess:
        image = image_for(request, variant)
        inside = "python3" if variant.mode.is_container else sys.executable
        if variant.mode is Mode.BUBBLEWRAP:
            mounts = (*mounts, *python_mounts())
        if not variant.accounting:
            monkeypatch.setattr(launching, "make_cgroup", _no_cgroup)
        wanted = IsolationPolicy(
            mounts=(*mounts, Mount.same(suite)),
            memory=MEMORY,
            scratch=MEMORY // 4,
            processes=64,
            open_files=256,
            user=variant.user,
            environment={"PYTHONPATH": str(suite)},
            **policy,
        )
        argv = (inside, "-S", "-m", "escapes", *arguments)
        launch = Launch(variant.mode, wanted, argv, image)
        return IsolatedProcess(launch, subprocess.DEVNULL, subprocess.PIPE, subprocess.PIPE)

    return begin


def image_for(request: pytest.FixtureRequest, variant: Variant) -> str:
    """The image that a variant runs, empty where it needs none; skips the test where a tool is missing."""
    if variant.mode is Mode.BUBBLEWRAP:
        need("bwrap")
    if not variant.mode.is_container:
        return ""
    image: str = request.getfixturevalue("image")
    if variant.mode is Mode.DOCKER:
        request.getfixturevalue("docker_daemon")
    return image


def attempted(
    start: Start, variant: Variant, folder: Path, attempts: tuple[Attempt, ...] = ATTEMPTS
) -> dict[str, tuple[bool, str]]:
    """Attempt → (whether it got out, in words)."""
    with planted(folder) as told:
        if variant.mode.is_container:
            told["writable"] += ["/dev", "/run", "/var"]  # file systems in memory, the container's own
        told |= {"memory": MEMORY, "open_files": 256, "attempts": [one.__name__ for one in attempts]}
        mounts = (Mount.same(folder / "writable", writable=True), Mount.same(folder / "read_only"))
        with start(variant, json.dumps(told), mounts=mounts, seconds=120) as process:
            out, err = process.process.communicate(timeout=150)
            assert process.wait() == 0, err.decode()
        found = dict(json.loads(out))
        if found["writing_beside_a_mount"][0] and not Path(told["beside"]).exists():
            found["writing_beside_a_mount"] = (False, "only inside")
        return found


@each_mode
def test_nothing_gets_out(start: Start, variant: Variant, tmp_path: Path) -> None:
    found = attempted(start, variant, tmp_path)
    assert set(found) == {one.__name__ for one in ATTEMPTS}
    out = {name: words for name, (got_out, words) in found.items() if got_out}
    assert out.keys() <= UNCLAIMED.get(variant, set()), out


def test_without_isolation_the_same_suite_gets_out(start: Start, tmp_path: Path) -> None:
    found = attempted(start, Variant(Mode.PLAIN, user=None), tmp_path, HARMLESS)
    root_only = {"kernel_settings", "writing_anywhere", "shadow_file", "environment_of_the_first_process"}
    here = {
        "hypervisor_socket": Path("/dev/vsock").exists(),
        "tracing_a_process_of_the_host": ROOT,
        "environment_of_the_first_process": bool(text_of(Path("/proc/1/environ"))),
    }
    for one in HARMLESS:
        if here.get(one.__name__, ROOT or one.__name__ not in root_only):
            assert found[one.__name__][0], (one.__name__, found[one.__name__])


@each_mode
def test_what_takes_too_long_is_ended(start: Start, variant: Variant) -> None:
    token = f"late-{os.getpid()}-{variant.name}"
    with start(variant, "--sleep", token, seconds=4) as process:
        began = time.monotonic()
        assert process.wait() == TIMED_OUT
        assert time.monotonic() - began < 100
        assert process.timed_out
        wait_until_gone(token)


@each_mode
def test_nothing_survives_its_launcher(request: pytest.FixtureRequest, start: Start, variant: Variant) -> None:
    """`kill -9` of the launcher, whose program has a child in a session of its own."""
    image_for(request, variant)  # a test that is skipped must not be two processes
    token = f"orphan-{os.getpid()}-{variant.name}"
    reading, writing = os.pipe()
    launcher = os.fork()
    if launcher == 0:
        try:
            process = start(variant, "--sleep", token)
            assert process.process.stdout is not None
            os.write(writing, process.process.stdout.readline())
            time.sleep(60)
        finally:
            os._exit(1)
    os.close(writing)
    assert os.read(reading, 64) == b"resting\n"
    os.close(reading)
    inside = running(token)
    assert len(inside) >= 2
    groups = groups_of(inside)
    os.kill(launcher, signal.SIGKILL)
    os.waitpid(launcher, 0)
    wait_until_gone(token, groups)


def groups_of(processes: list[int]) -> set[Path]:
    """The cgroups that we made for some processes; another sandbox of this machine may have left its own behind."""
    found = set()
    for folder in Path("/sys/fs/cgroup").rglob("muster-*"):
        with suppress(OSError):
            if set(processes) & {int(pid) for pid in (folder / "cgroup.procs").read_text().split()}:
                found.add(folder)
    return found


def wait_until_gone(token: str, groups: Iterable[Path] = ()) -> None:
    wait_for("no process with that word is left", lambda: not running(token), 60)
    wait_for("no cgroup is left", lambda: not any(path.exists() for path in groups), 60)


@pytest.mark.skipif(not ROOT, reason="only root has these powers to lose")
def test_the_suite_notices_each_power(suite: Path, tmp_path: Path) -> None:
    """All capabilities, all devices, no filter: in mounts of its own, so that nothing comes of it."""
    need("bwrap")
    attempts = (*PRIVILEGE, *DEVICES)
    told = {"token": "powers", "attempts": [one.__name__ for one in attempts]}
    view = ["--bind", "/", "/", "--dev-bind", "/dev", "/dev", "--tmpfs", "/tmp", "--ro-bind", str(suite), "/tmp/suite"]
    python = str(Path(sys.executable).resolve())  # a virtual environment below /tmp is out of sight
    argv = ["bwrap", *view, "--cap-add", "ALL", "--chdir", "/tmp/suite", python, "-S", "-m", "escapes"]
    done = subprocess.run([*argv, json.dumps(told)], capture_output=True, text=True, timeout=60, check=True)
    found = json.loads(done.stdout)
    there = {"physical_memory": Path("/dev/mem"), "kernel_log": Path("/dev/kmsg")}
    # bubblewrap itself sets no_new_privs
    expected = {one.__name__ for one in attempts if there.get(one.__name__, Path("/")).exists()}
    assert {name for name, (got_out, _) in found.items() if got_out} == expected - {"privileges_from_files"}
