"""bubblewrap's command line for a policy: namespaces, a read-only view of the host's programs, no capabilities."""

import ctypes
import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from protocol.errors import ConfigError
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
    """Return the command that runs `argv` in new namespaces."""
    return ["bwrap", *_options(policy, view, handles), "--", *_as_user(policy), *limited(policy), *argv]


def limited(policy: IsolationPolicy) -> list[str]:
    """Return a command's prefix that sets what the kernel counts per process and per user."""
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
    """Return the folders that have to be made for the mounts' targets: bubblewrap's own are for their owner only."""
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


# System calls that programs in bubblewrap cannot make; libseccomp knows their numbers on every architecture


_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_EPERM, _ENOSYS = 1, 38
_MASKED_EQUAL = 7
NEW_NAMESPACES = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
AF_ALG, AF_VSOCK = 38, 40

DENIED = (
    *("mount", "umount2", "pivot_root", "chroot", "move_mount", "open_tree", "fsopen", "fsconfig", "fsmount", "fspick"),
    *("mount_setattr", "unshare", "setns", "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp"),
    *("add_key", "request_key", "keyctl", "bpf", "perf_event_open", "userfaultfd"),
    *("io_uring_setup", "io_uring_enter", "io_uring_register", "fanotify_init", "name_to_handle_at"),
    *("open_by_handle_at", "init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot"),
    *("swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "settimeofday", "clock_settime", "adjtimex"),
    *("clock_adjtime", "sethostname", "setdomainname", "iopl", "ioperm", "syslog", "vhangup", "personality"),
)
"""Whatever their arguments."""


class _Comparison(ctypes.Structure):
    _fields_ = (("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64))


def filter_file() -> int:
    """Return a file descriptor with the compiled filter, at its beginning; the caller closes it. Raise ConfigError
    where libseccomp is missing or refuses."""
    library = _library()
    context = library.seccomp_init(_ALLOW)
    if not context:
        raise ConfigError("libseccomp makes no filter", "update libseccomp")
    handle = os.memfd_create("seccomp")
    try:
        for name, error, comparison in _rules():
            number = library.seccomp_syscall_resolve_name(name.encode())
            if number < 0:  # not on this architecture, or younger than this library
                continue
            given = (_Comparison * 1)(comparison) if comparison else None
            code = library.seccomp_rule_add_array(context, _ERRNO | error, number, 1 if given else 0, given)
            if code:
                raise ConfigError(f"libseccomp refuses the rule for {name} ({-code})", "update libseccomp")
        if library.seccomp_export_bpf(context, handle):
            raise ConfigError("libseccomp does not write its filter", "update libseccomp")
    except BaseException:
        os.close(handle)
        raise
    finally:
        library.seccomp_release(context)
    os.lseek(handle, 0, os.SEEK_SET)
    return handle


def _rules() -> Iterator[tuple[str, int, _Comparison | None]]:
    """(system call, error, condition on one argument)."""
    for name in DENIED:
        yield name, _EPERM, None
    yield "clone3", _ENOSYS, None  # its flags lie in memory, where no filter looks; C libraries fall back to clone
    for flag in NEW_NAMESPACES:
        yield "clone", _EPERM, _Comparison(0, _MASKED_EQUAL, flag, flag)
    for request in (_TIOCSTI, _TIOCLINUX):
        yield "ioctl", _EPERM, _Comparison(1, _MASKED_EQUAL, 0xFFFFFFFF, request)
    for family in (AF_ALG, AF_VSOCK):
        yield "socket", _EPERM, _Comparison(0, _MASKED_EQUAL, 0xFFFFFFFF, family)


def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL("libseccomp.so.2")
    except OSError:
        raise ConfigError("libseccomp is not installed", "apt-get install libseccomp2") from None
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_init.argtypes = [ctypes.c_uint32]
    library.seccomp_rule_add_array.argtypes = [
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_int,
        ctypes.c_uint,
        ctypes.c_void_p,
    ]
    library.seccomp_export_bpf.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.seccomp_release.argtypes = [ctypes.c_void_p]
    library.seccomp_syscall_resolve_name.argtypes = [ctypes.c_char_p]
    return library


# What of this machine a program may see: the system's programs, Python, muster; never homes or keys


_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SETTINGS = (
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime"),
    *("/etc/ssl/certs", "/etc/ca-certificates", "/etc/pki/tls/certs", "/etc/pki/ca-trust", "/etc/nsswitch.conf"),
)
_PROCESSORS = ("/sys/devices/system/cpu", "/sys/devices/system/node")
"""How many there are, and which memory is near: vLLM places its threads by `lscpu`. `/proc/cpuinfo` tells it too."""
_NAMES = ("/etc/resolv.conf", "/etc/hosts", "/etc/gai.conf")
"""How names become addresses: for programs with a network."""
_GPU = ("nvidia*", "nvidia-uvm*", "nvidia-caps/*")


def system_view(network: bool) -> HostView:
    """Return the system's programs and libraries, and the settings that these read."""
    links, mounts = {}, []
    for path in map(Path, _SYSTEM):
        if path.is_symlink():
            links[path] = os.readlink(path)
        elif path.is_dir():
            mounts.append(Mount.same(path))
    for path in map(Path, (*_SETTINGS, *_PROCESSORS, *(_NAMES if network else ()))):
        if path.exists():
            mounts.append(Mount(source=path.resolve(), target=path))
    devices = {found for pattern in _GPU for found in Path("/dev").glob(pattern) if found.is_char_device()}
    return HostView(tuple(mounts), links, tuple(sorted(devices)))


def python_mounts() -> tuple[Mount, ...]:
    """This Python, its packages, and muster's own rooms where they lie in a checkout."""
    folders = dict.fromkeys((Path(sys.base_prefix), Path(sys.prefix), *_rooms()))
    kept: list[Path] = []
    for folder in sorted(folders, key=lambda one: len(one.parts)):
        if not folder.is_relative_to("/usr") and not any(folder.is_relative_to(one) for one in kept):
            kept.append(folder)
    return tuple(Mount(source=folder.resolve(), target=folder) for folder in kept)


def _rooms() -> Iterator[Path]:
    """Yield the folders of muster's top-level packages."""
    for name in (metadata.distribution("muster").read_text("top_level.txt") or "").split():
        spec = importlib.util.find_spec(name)
        found = map(Path, (spec.submodule_search_locations or ()) if spec else ())
        yield from (folder for folder in found if folder.is_dir())  # an editable installation names a hook, too
