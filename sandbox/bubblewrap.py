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


@dataclass(frozen=True)
class HostView:
    """What programs see of the host, read-only; `links`: path → target; `devices`: of its GPUs."""

    mounts: tuple[Mount, ...] = ()
    links: Mapping[Path, str] = field(default_factory=dict)
    devices: tuple[Path, ...] = ()


def bubblewrap_command(
    policy: IsolationPolicy, argv: Sequence[str], view: HostView, seccomp: int, info: int
) -> list[str]:
    """Return the command that runs `argv` in new namespaces. bubblewrap inherits two descriptors: `seccomp`, the
    compiled filter of system calls, and `info`, to which it reports the id of the program's first process."""
    command = ["bwrap", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--die-with-parent"]
    command += ["--new-session", "--cap-drop", "ALL", "--clearenv"]
    if policy.user is None:
        command += ["--unshare-user", "--disable-userns"]
    else:  # what setpriv needs to become that user
        command += [word for name in ("SETUID", "SETGID", "SETPCAP") for word in ("--cap-add", f"CAP_{name}")]
    if policy.network is NetworkAccess.NONE:
        command.append("--unshare-net")
    command += ["--seccomp", str(seccomp), "--info-fd", str(info)]
    for name, value in ({"PATH": "/usr/local/bin:/usr/bin:/bin"} | policy.environment).items():
        command += ["--setenv", name, value]
    command += [*_files(policy, view), "--chdir", str(policy.folder), "--"]
    if policy.user is not None:  # as another user, with no way back
        ids = [f"--reuid={policy.user}", f"--regid={policy.user}", "--clear-groups"]
        command += ["setpriv", *ids, "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "--"]
    # The kernel counts these per process and per user.
    command += ["prlimit", f"--nofile={policy.open_files}", f"--nproc={policy.processes}", "--core=0"]
    if policy.memory is not None:
        # Not the address space: programs reserve far more of that than they use, with a GPU terabytes.
        command.append(f"--data={policy.memory}")
        if not any(mount.writable for mount in policy.mounts):  # all files that it can make are in memory
            command.append(f"--fsize={policy.memory}")
    return [*command, "--", *argv]


def _files(policy: IsolationPolicy, view: HostView) -> Iterator[str]:
    """Yield options by which everything writable is a mount of the policy or has a size."""
    for link, target in view.links.items():
        yield from ("--symlink", target, str(link))
    # Without capabilities, root still owns the kernel's settings under /proc/sys.
    yield from ("--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev")
    for device in view.devices if policy.gpu else ():
        yield from ("--dev-bind", str(device), str(device))
    yield from ("--remount-ro", "/dev")
    for scratch in ("/dev/shm", "/tmp"):
        yield from ("--perms", "1777", "--size", str(policy.scratch), "--tmpfs", scratch)
    mounts = sorted((*view.mounts, *policy.mounts), key=lambda mount: len(mount.target.parts))
    # bubblewrap would make the folders above a mount's target readable for their owner only
    existing = {Path("/"), Path("/proc"), Path("/dev"), Path("/dev/shm"), Path("/tmp")}
    for folder in sorted({parent for mount in mounts for parent in mount.target.parents} - existing):
        if not any(folder.is_relative_to(mount.target) for mount in mounts):
            yield from ("--perms", "0755", "--dir", str(folder))
    for mount in mounts:
        yield from ("--bind" if mount.writable else "--ro-bind", str(mount.source), str(mount.target))
    yield from ("--remount-ro", "/")


# System calls that programs in bubblewrap cannot make; libseccomp knows their numbers on every architecture

_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_EPERM, _ENOSYS = 1, 38
_MASKED_EQUAL = 7
NEW_NAMESPACES = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
AF_ALG, AF_VSOCK = 38, 40
# Whatever their arguments
DENIED = (
    *("mount", "umount2", "pivot_root", "chroot", "move_mount", "open_tree", "fsopen", "fsconfig", "fsmount", "fspick"),
    *("mount_setattr", "unshare", "setns", "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp"),
    *("add_key", "request_key", "keyctl", "bpf", "perf_event_open", "userfaultfd"),
    *("io_uring_setup", "io_uring_enter", "io_uring_register", "fanotify_init", "name_to_handle_at"),
    *("open_by_handle_at", "init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot"),
    *("swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "settimeofday", "clock_settime", "adjtimex"),
    *("clock_adjtime", "sethostname", "setdomainname", "iopl", "ioperm", "syslog", "vhangup", "personality"),
)


class _Comparison(ctypes.Structure):
    _fields_ = (("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64))


# System call, error, condition on one argument
_RULES: list[tuple[str, int, _Comparison | None]] = [(name, _EPERM, None) for name in DENIED]
_RULES.append(("clone3", _ENOSYS, None))  # its flags lie in memory, where no filter looks; C libraries take clone then
_RULES += [("clone", _EPERM, _Comparison(0, _MASKED_EQUAL, flag, flag)) for flag in NEW_NAMESPACES]
_RULES += [("ioctl", _EPERM, _Comparison(1, _MASKED_EQUAL, 0xFFFFFFFF, call)) for call in (_TIOCSTI, _TIOCLINUX)]
_RULES += [("socket", _EPERM, _Comparison(0, _MASKED_EQUAL, 0xFFFFFFFF, family)) for family in (AF_ALG, AF_VSOCK)]


def filter_file() -> int:
    """Return a descriptor of the compiled filter, for the caller to close. Raise ConfigError without libseccomp."""
    try:
        library = ctypes.CDLL("libseccomp.so.2")
    except OSError:
        raise ConfigError("libseccomp is not installed", "apt-get install libseccomp2") from None
    pointer, number = ctypes.c_void_p, ctypes.c_uint32
    library.seccomp_init.restype, library.seccomp_init.argtypes = pointer, [number]
    library.seccomp_rule_add_array.argtypes = [pointer, number, ctypes.c_int, ctypes.c_uint, pointer]
    library.seccomp_export_bpf.argtypes = [pointer, ctypes.c_int]
    library.seccomp_release.argtypes = [pointer]
    context = library.seccomp_init(_ALLOW)
    if not context:
        raise ConfigError("libseccomp makes no filter", "update libseccomp")
    handle = os.memfd_create("seccomp")
    try:
        for name, error, comparison in _RULES:
            call = library.seccomp_syscall_resolve_name(name.encode())
            if call < 0:  # not on this architecture, or younger than this library
                continue
            given = (_Comparison * 1)(comparison) if comparison else None
            if code := library.seccomp_rule_add_array(context, _ERRNO | error, call, 1 if given else 0, given):
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


# What of this machine a program may see: the system's programs, Python, muster; never homes or keys

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SETTINGS = (
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime"),
    *("/etc/ssl/certs", "/etc/ca-certificates", "/etc/pki/tls/certs", "/etc/pki/ca-trust", "/etc/nsswitch.conf"),
    # processors, and which memory is near: vLLM places its threads by `lscpu`
    *("/sys/devices/system/cpu", "/sys/devices/system/node"),
)
_NETWORK_SETTINGS = ("/etc/resolv.conf", "/etc/hosts", "/etc/gai.conf")
_GPU = ("nvidia*", "nvidia-uvm*", "nvidia-caps/*")


def system_view(network: bool) -> HostView:
    """Return the system's programs and libraries, and the settings that these read."""
    links, mounts = {}, []
    for path in map(Path, _SYSTEM):
        if path.is_symlink():
            links[path] = os.readlink(path)
        elif path.is_dir():
            mounts.append(Mount.same(path))
    for path in map(Path, (*_SETTINGS, *(_NETWORK_SETTINGS if network else ()))):
        if path.exists():
            mounts.append(Mount(source=path.resolve(), target=path))
    devices = {device for pattern in _GPU for device in Path("/dev").glob(pattern) if device.is_char_device()}
    return HostView(tuple(mounts), links, tuple(sorted(devices)))


def python_mounts() -> tuple[Mount, ...]:
    """Return mounts of this Python, its packages, and muster's own packages where they lie in a checkout."""
    folders = {Path(sys.base_prefix), Path(sys.prefix)}
    for name in (metadata.distribution("muster").read_text("top_level.txt") or "").split():
        spec = importlib.util.find_spec(name)
        locations = map(Path, (spec.submodule_search_locations or ()) if spec else ())
        folders |= {folder for folder in locations if folder.is_dir()}  # an editable installation names a hook, too
    kept: list[Path] = []
    for folder in sorted(folders, key=lambda folder: len(folder.parts)):
        if not folder.is_relative_to("/usr") and not any(folder.is_relative_to(above) for above in kept):
            kept.append(folder)
    return tuple(Mount(source=folder.resolve(), target=folder) for folder in kept)
