"""Other processes, powers of root, devices."""

import os
import stat
from contextlib import suppress
from pathlib import Path

from .base import LIBC, Attempt, Told, checked

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
PTRACE_ATTACH = 16


def environment_of_the_first_process(told: Told) -> str | None:
    text = Path("/proc/1/environ").read_bytes().decode(errors="replace")
    return "environment" if told["init_environment"] and text == told["init_environment"] else None


def seeing_a_process_of_the_host(told: Told) -> str | None:
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if _is_victim(process, told):
                return str(process)
    return None


def signalling_a_process_of_the_host(told: Told) -> str | None:
    os.kill(told["victim"], 0)
    return "signal 0 arrived" if _is_victim(Path(f"/proc/{told['victim']}"), told) else None


def _is_victim(process: Path, told: Told) -> bool:
    """By a word in its command line, told backwards, because what we are told is in our own command line."""
    return told["victim_backwards"][::-1] in (process / "cmdline").read_text()


def tracing_a_process_of_the_host(told: Told) -> str:
    return checked(LIBC.ptrace(PTRACE_ATTACH, told["victim"], None, None), "attached")


def a_user_namespace(told: Told) -> str:
    return checked(LIBC.unshare(CLONE_NEWUSER), "user namespace")


def a_network_namespace(told: Told) -> str:
    return checked(LIBC.unshare(CLONE_NEWNET), "network namespace")


def mounting(told: Told) -> str:
    """On a folder of its own, and undone at once."""
    folder = Path(told["token"] + "-mount")
    os.chdir("/tmp")
    folder.mkdir(exist_ok=True)
    try:
        return checked(LIBC.mount(b"none", bytes(folder), b"tmpfs", 0, None), "mounted")
    finally:
        LIBC.umount2(bytes(folder), 0)
        folder.rmdir()


def becoming_root(told: Told) -> str | None:
    os.setuid(0)
    held = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapEff")]
    return None if int(held[0].split()[1], 16) == 0 else "root with capabilities"


def capabilities(told: Told) -> str | None:
    status = Path("/proc/self/status").read_text()
    sets = [
        line.split()[1] for line in status.splitlines() if line.startswith(("CapPrm", "CapEff", "CapBnd", "CapAmb"))
    ]
    return None if all(int(one, 16) == 0 for one in sets) else " ".join(sets)


def privileges_from_files(told: Told) -> str | None:
    """no_new_privs is what makes set-user-id programs harmless."""
    return None if "NoNewPrivs:\t1" in Path("/proc/self/status").read_text() else "set-user-id programs work"


def making_a_device(told: Told) -> str:
    path = Path("/tmp") / f"{told['token']}-memory"
    os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 1))
    path.unlink()
    return str(path)


def physical_memory(told: Told) -> str:
    os.close(os.open("/dev/mem", os.O_RDONLY))
    return "/dev/mem"


def kernel_log(told: Told) -> str:
    os.close(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK))
    return "/dev/kmsg"


def disks(told: Told) -> str | None:
    for device in Path("/dev").iterdir():
        with suppress(OSError):
            if device.is_block_device():
                os.close(os.open(device, os.O_RDONLY))
                return str(device)
    return None


PROCESSES: tuple[Attempt, ...] = (
    *(environment_of_the_first_process, seeing_a_process_of_the_host, signalling_a_process_of_the_host),
    tracing_a_process_of_the_host,
)
PRIVILEGE: tuple[Attempt, ...] = (
    *(capabilities, privileges_from_files, becoming_root, mounting, a_network_namespace, a_user_namespace),
)
DEVICES: tuple[Attempt, ...] = (making_a_device, physical_memory, kernel_log, disks)
