"""bubblewrap's command line for a policy: namespaces, a read-only view of the host's programs, no capabilities."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.policy import IsolationPolicy, Mount, NetworkAccess

_ALWAYS = ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--die-with-parent")
_FOR_SETPRIV = ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP")


@dataclass(frozen=True)
class HostView:
    """What of the host every program sees, read-only: `mounts`, and `links` (path → where it points). `devices`: the
    device files of its GPUs."""

    mounts: tuple[Mount, ...] = ()
    links: Mapping[Path, str] = field(default_factory=dict)
    devices: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Descriptors:
    """File descriptors that bubblewrap inherits: the compiled filter of system calls, and where it reports the process
    id of the program's first process."""

    seccomp: int
    info: int


def bubblewrap_command(policy: IsolationPolicy, argv: Sequence[str], view: HostView, handles: Descriptors) -> list[str]:
    """The command that runs `argv` in new namespaces."""
    return ["bwrap", *_options(policy, view, handles), "--", *_as_user(policy), *limited(policy), *argv]


def limited(policy: IsolationPolicy) -> list[str]:
    """A command's prefix that sets what the kernel counts per process and per user."""
    limits = [f"--nofile={policy.open_files}", f"--nproc={policy.processes}", "--core=0"]
    if policy.memory is not None:
        # Not the address space: programs reserve far more of that than they use, with a GPU terabytes.
        limits.append(f"--data={policy.memory}")
        if not any(mount.writable for mount in policy.mounts):  # all files that it can make are in memory
            limits.append(f"--fsize={policy.memory}")
    return ["prlimit", *limits, "--"]


def _options(policy: IsolationPolicy, view: HostView, handles: Descriptors) -> Iterator[str]:
    yield from _ALWAYS
    yield from ("--new-session", "--cap-drop", "ALL", "--clearenv")
    if policy.user is None:
        yield from ("--unshare-user", "--disable-userns")
    else:
        for capability in _FOR_SETPRIV:
            yield from ("--cap-add", capability)
    if policy.network is NetworkAccess.NONE:
        yield "--unshare-net"
    yield from ("--seccomp", str(handles.seccomp), "--info-fd", str(handles.info))
    for name, value in ({"PATH": "/usr/local/bin:/usr/bin:/bin"} | policy.environment).items():
        yield from ("--setenv", name, value)
    yield from _files(policy, view)
    yield from ("--chdir", str(policy.folder))


def _files(policy: IsolationPolicy, view: HostView) -> Iterator[str]:
    """Everything that can be written to is a mount of the policy or has a size."""
    for link, points_to in view.links.items():
        yield from ("--symlink", points_to, str(link))
    # without capabilities, root still is the owner of the kernel's settings under /proc/sys
    yield from ("--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev")
    for device in (*policy.devices, *(view.devices if policy.gpu else ())):
        yield from ("--dev-bind", str(device), str(device))
    yield from ("--remount-ro", "/dev")
    for scratch in ("/dev/shm", "/tmp"):
        yield from ("--perms", "1777", "--size", str(policy.scratch), "--tmpfs", scratch)
    mounts = sorted((*view.mounts, *policy.mounts), key=lambda one: len(one.target.parts))
    for folder in _parents(mounts):
        yield from ("--perms", "0755", "--dir", str(folder))
    for mount in mounts:
        yield from ("--bind" if mount.writable else "--ro-bind", str(mount.source), str(mount.target))
    yield from ("--remount-ro", "/")


def _parents(mounts: Sequence[Mount]) -> list[Path]:
    """The folders that have to be made for the mounts' targets: bubblewrap's own are for their owner only."""
    there = {Path("/"), Path("/proc"), Path("/dev"), Path("/dev/shm"), Path("/tmp")}
    wanted = {parent for mount in mounts for parent in mount.target.parents} - there
    inside = [mount.target for mount in mounts]
    return sorted(folder for folder in wanted if not any(folder.is_relative_to(one) for one in inside))


def _as_user(policy: IsolationPolicy) -> list[str]:
    """With the id of another user, and no way back."""
    if policy.user is None:
        return []
    ids = [f"--reuid={policy.user}", f"--regid={policy.user}", "--clear-groups"]
    return ["setpriv", *ids, "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "--"]
