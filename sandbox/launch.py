"""Start a program under a policy in one of the modes, limit it, end it, and clean up after it."""

import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import psutil

from protocol.errors import ConfigError, MusterError, printable
from protocol.files import die_with_parent, user_cache
from sandbox.bubblewrap import bubblewrap_command, filter_file, system_view
from sandbox.containers import check_image, container_command, profile_file, removal
from sandbox.policy import MIB, IsolationPolicy, Mode, NetworkAccess, Wanted
from sandbox.watchdog import Watchdog, remove_folders


def plan_cgroup(
    policy: IsolationPolicy, name: str, own: str, root: Path = Path("/sys/fs/cgroup")
) -> dict[Path, dict[str, str]]:
    """Return the folders of the group called `name` → what is written into their files; `?` ends a name that not every
    kernel has. `own`: the text of /proc/self/cgroup. Version 1: under our own group of each controller. Version 2:
    directly under `root`: a group with processes of its own has no limited children."""
    controllers = dict[str, str]()
    for line in own.splitlines():
        _, names, path = line.split(":", 2)
        controllers |= {controller: path for controller in names.split(",") if controller}
    memory, pids = str(policy.memory), {"pids.max": str(policy.processes)}
    if not {"memory", "pids"} <= controllers.keys():
        limits = {"memory.max": memory, "memory.swap.max?": "0"} if policy.memory else {}
        return {root / name: pids | limits}
    settings = {root / "pids" / controllers["pids"].lstrip("/") / name: pids}
    if policy.memory:
        limits = {"memory.limit_in_bytes": memory, "memory.memsw.limit_in_bytes?": memory}
        settings[root / "memory" / controllers["memory"].lstrip("/") / name] = limits
    return settings


def make_cgroup(settings: Mapping[Path, Mapping[str, str]]) -> None:
    """Make the folders and write the files. Raise OSError where that is not allowed, and leave nothing then."""
    try:
        for folder, files in settings.items():
            folder.mkdir()
            for name, value in files.items():
                path = folder / name.removesuffix("?")
                if not name.endswith("?") or path.exists():
                    path.write_text(value)
    except OSError:
        remove_folders(list(settings))
        raise


TIMED_OUT = 124
_INFO_SECONDS = 10.0
_KILL_SECONDS, _MORE_SECONDS = 20.0, 7.0
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
Stream = int | IO[Any] | None


@dataclass(frozen=True)
class Launch:
    """`argv` under `policy`; `image` is for containers, by its digest."""

    mode: Mode
    policy: IsolationPolicy
    argv: tuple[str, ...]
    image: str = ""


class IsolatedProcess:
    """A running program. It ends with the thread that started it; `close` (or `with`) removes what is left of it."""

    def __init__(self, launch: Launch, stdin: Stream = None, stdout: Stream = None, stderr: Stream = None) -> None:
        self.launch, self.timed_out, self._init, self._left_to_watchdog = launch, False, 0, False
        self._streams: dict[str, Any] = {"stdin": stdin, "stdout": stdout, "stderr": stderr}
        self._name = f"muster-{secrets.token_hex(8)}"
        self._cgroup: list[Path] = []
        if launch.mode is Mode.BUBBLEWRAP:
            settings = plan_cgroup(launch.policy, self._name, Path("/proc/self/cgroup").read_text())
            with suppress(OSError):
                make_cgroup(settings)
                self._cgroup = list(settings)
        self._removal = removal(launch.mode, self._name) if launch.mode.is_container else []
        self._watchdog = Watchdog(self._removal, self._cgroup)
        self._end = time.monotonic() + launch.policy.seconds if launch.policy.seconds else None
        try:
            self.process = self._start()
        except BaseException:
            self._clean()
            raise

    @property
    def has_accounting(self) -> bool:
        """Whether all its processes together are held to the policy's limits."""
        return bool(self._cgroup) or self.launch.mode.is_container

    def wait(self) -> int:
        """Return its exit code (128 + n for signal n); TIMED_OUT once the policy's seconds are over."""
        left = None if self._end is None else max(0.0, self._end - time.monotonic())
        try:
            code = self.process.wait(left)
        except subprocess.TimeoutExpired:
            self.timed_out = True
            self.kill()
            return TIMED_OUT
        return 128 - code if code < 0 else code

    def send(self, number: int) -> None:
        if self.launch.mode is not Mode.BUBBLEWRAP:
            self.process.send_signal(number)  # an engine's client passes it on
            return
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            for program in psutil.Process(self._init).children():
                program.send_signal(number)

    def kill(self) -> None:
        """End it and everything that it started."""
        if self._removal:
            try:
                subprocess.run(self._removal, capture_output=True, timeout=_KILL_SECONDS, check=False)
            except subprocess.TimeoutExpired:
                self._left_to_watchdog = True
        if self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(_KILL_SECONDS)

    def close(self) -> None:
        """Kill it if it still runs, and remove its groups."""
        try:
            if self.process.poll() is None:
                self.kill()
        finally:
            self._clean()

    def __enter__(self) -> "IsolatedProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> "subprocess.Popen[Any]":
        launch = self.launch
        if launch.mode.is_container:
            profile = profile_file() if launch.mode is Mode.PODMAN else None
            argv = container_command(launch.mode, launch.policy, launch.argv, self._name, launch.image, profile)
            # in a folder of ours: where a container runs out of memory, podman's monitor leaves a file in its folder
            folder = user_cache("isolation")
            folder.mkdir(parents=True, exist_ok=True)
            return self._popen(argv, None, folder)
        if launch.mode is Mode.PLAIN:
            return self._popen(list(launch.argv), {"PATH": _PATH} | launch.policy.environment, launch.policy.folder)
        with ExitStack() as handles:
            handles.callback(os.close, seccomp := filter_file())
            reading, writing = os.pipe()
            info = handles.enter_context(open(reading, "rb", buffering=0))
            with open(writing, "wb"):
                view = system_view(launch.policy.network is not NetworkAccess.NONE)
                argv = bubblewrap_command(launch.policy, launch.argv, view, seccomp, writing)
                process = self._popen(argv, {"PATH": os.environ.get("PATH", _PATH)}, None, (seccomp, writing))
            self._init = _reported(info.fileno())
            return process

    def _popen(
        self, argv: list[str], env: dict[str, str] | None, folder: Path | None, pass_fds: tuple[int, ...] = ()
    ) -> "subprocess.Popen[Any]":
        parent, cgroup = os.getpid(), self._cgroup

        def prepare() -> None:
            die_with_parent(parent)
            for folder in cgroup:
                (folder / "cgroup.procs").write_text("0")

        settings: dict[str, Any] = {"cwd": folder, "pass_fds": pass_fds, "preexec_fn": prepare} | self._streams
        try:
            return subprocess.Popen(argv, env=env, start_new_session=True, **settings)
        except FileNotFoundError:
            raise ConfigError(f"`{argv[0]}` is not on the PATH", f"install {argv[0]}") from None

    def _clean(self) -> None:
        remove_folders(self._cgroup)
        self._watchdog.dismiss(done=not self._left_to_watchdog)


def run(launch: Launch, grace: float | None) -> int:
    """Run a program in a main thread's foreground and pass SIGINT and SIGTERM on. Kill it if it has not ended seven
    seconds after the `grace` that it gives itself; with None it may take as long as it needs."""
    with IsolatedProcess(launch) as process:

        def stop(number: int, _: object) -> None:
            process.send(number)
            if grace is not None:
                last = threading.Timer(grace + _MORE_SECONDS, process.kill)
                last.daemon = True
                last.start()

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)
        return process.wait()


def _reported(handle: int) -> int:
    """Return the process id of the first process of bubblewrap's new namespace; 0 if it failed before there was one."""
    report, end = b"", time.monotonic() + _INFO_SECONDS
    while select.select([handle], [], [], max(0.0, end - time.monotonic()))[0] and (part := os.read(handle, 4096)):
        report += part
    try:
        return int(json.loads(report)["child-pid"])
    except (ValueError, KeyError):
        return 0


# Choosing a mode: each is tried with a tiny program


_CANDIDATES: Mapping[Wanted, tuple[Mode, ...]] = {
    "auto": (Mode.PODMAN, Mode.DOCKER, Mode.BUBBLEWRAP),
    "container": (Mode.PODMAN, Mode.DOCKER),
    "bubblewrap": (Mode.BUBBLEWRAP,),
    "none": (),
}
_CURES: Mapping[Wanted, str] = {
    "container": "install podman (apt-get install podman runc), name an image by its digest, or choose another mode",
    "bubblewrap": "install bubblewrap (apt-get install bubblewrap), or choose another mode",
}
_PROGRAMS = {Mode.PODMAN: "podman", Mode.DOCKER: "docker", Mode.BUBBLEWRAP: "bwrap"}
_PROBE = IsolationPolicy(memory=64 * MIB, processes=64, scratch=MIB, seconds=20.0)


@dataclass(frozen=True)
class Probed:
    """`trouble`: why a mode does not work; `accounting`: whether its limits hold for all processes together."""

    trouble: str = ""
    accounting: bool = False


@dataclass(frozen=True)
class Choice:
    """`why_not`: the stronger modes that do not work, and why."""

    mode: Mode
    accounting: bool = False
    why_not: Mapping[Mode, str] = field(default_factory=dict)


def choose(wanted: Wanted, image: str = "") -> Choice:
    """Return the first mode that works of those that are wanted. Only `auto` and `none` come to the plain one;
    ConfigError when anything else does not work here. `image`: what containers run, by its digest."""
    why_not: dict[Mode, str] = {}
    for mode in _CANDIDATES[wanted]:
        probed = try_mode(mode, image)
        if not probed.trouble:
            return Choice(mode, probed.accounting, why_not)
        why_not[mode] = probed.trouble
    if wanted in _CURES:
        reasons = "; ".join(f"{mode.value}: {why}" for mode, why in why_not.items())
        raise ConfigError(f"isolation = {wanted!r} does not work here ({reasons})", _CURES[wanted])
    return Choice(Mode.PLAIN, False, why_not)


@cache
def try_mode(mode: Mode, image: str) -> Probed:
    """Run a program that does nothing in a mode, for at most twenty seconds; once per process."""
    if shutil.which(_PROGRAMS[mode]) is None:
        return Probed(f"`{_PROGRAMS[mode]}` is not on the PATH")
    argv = ("python3", "-S", "-c", "") if mode.is_container else ("true",)
    try:
        if mode.is_container:
            check_image(image)
        with TemporaryFile() as errors:
            launch = Launch(mode, _PROBE, argv, image)
            with IsolatedProcess(launch, subprocess.DEVNULL, subprocess.DEVNULL, errors) as process:
                code = process.wait()
            errors.seek(0)
            lines = errors.read(65536).decode(errors="replace").strip().splitlines()
    except (MusterError, OSError, subprocess.SubprocessError) as error:
        return Probed(printable(getattr(error, "what", str(error))))
    if process.timed_out:
        return Probed(f"no answer within {_PROBE.seconds:.0f} s")
    return Probed(printable(lines[0]) if lines else f"exit code {code}") if code else Probed("", process.has_accounting)
