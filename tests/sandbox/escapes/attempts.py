"""What is tried inside: services and files of the host, taking more than is allowed, powers of root, devices."""

import ctypes
import mmap
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

Told = dict[str, Any]
Attempt = Callable[[Told], str | None]
LIBC = ctypes.CDLL(None, use_errno=True)


def checked(result: int, what: str) -> str:
    """The words of a C call that succeeded; OSError of one that did not."""
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return what


# Services of the machine, of its neighbours, and of its hypervisor


AF_VSOCK = 40


def loopback_service(told: Told) -> str:
    with socket.create_connection(("127.0.0.1", told["tcp"]), timeout=2) as connection:
        return connection.recv(64).decode()


def name_server(told: Told) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(1)
        asking.sendto(b"who is there", ("127.0.0.1", told["udp"]))
        return asking.recv(64).decode()


def abstract_socket(told: Told) -> str:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(2)
        connection.connect("\0" + told["abstract"])
        return connection.recv(64).decode()


def outer_interface(told: Told) -> str | None:
    """An address of the machine itself."""
    with socket.create_connection((told["address"], told["tcp_everywhere"]), timeout=2) as connection:
        return connection.recv(64).decode()


def hypervisor_socket(told: Told) -> str:
    """Network namespaces do not hold these."""
    socket.socket(AF_VSOCK, socket.SOCK_STREAM).close()
    return "AF_VSOCK"


NETWORK: tuple[Attempt, ...] = (loopback_service, name_server, abstract_socket, outer_interface, hypervisor_socket)


# Files and settings of the host


def shadow_file(told: Told) -> str | None:
    """The host's: an image may have an own one, without the host's mark."""
    return "passwords" if Path("/etc/shadow").read_text() == told["shadow"] else None


def planted_secret(told: Told) -> str:
    return Path(told["secret"]).read_text()


def secret_through_a_link(told: Told) -> str:
    link = Path("/tmp") / f"{told['token']}-link"
    link.symlink_to(told["secret"])
    try:
        return link.read_text()
    finally:
        link.unlink()


def secret_through_another_root(told: Told) -> str:
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            return Path(f"{process}/root{told['secret']}").read_text()
    raise PermissionError("no process's root shows it")


def writing_beside_a_mount(told: Told) -> str:
    """Judged from outside: what is written may be gone with the sandbox."""
    Path(told["beside"]).write_text("was here")
    return str(told["beside"])


def writing_anywhere(told: Told) -> str | None:
    """Every folder that is no scratch space and no writable mount."""
    for folder, folders, _ in os.walk("/"):
        folders[:] = [one for one in folders if f"{folder.rstrip('/')}/{one}" not in told["writable"]]
        if folder.count("/") > 2:
            folders.clear()
        with suppress(OSError):
            path = Path(folder) / told["token"]
            path.write_text("was here")
            path.unlink()
            return folder
    return None


def writing_to_a_read_only_mount(told: Told) -> str:
    (Path(told["read_only"]) / "new").write_text("was here")
    return str(told["read_only"])


def kernel_settings(told: Told) -> str:
    path = Path("/proc/sys/kernel/core_pattern")
    with path.open("r+") as file:
        file.write(file.read())
    return str(path)


FILES: tuple[Attempt, ...] = (
    *(shadow_file, planted_secret, secret_through_a_link, secret_through_another_root, writing_beside_a_mount),
    *(writing_anywhere, writing_to_a_read_only_mount, kernel_settings),
)


# Taking more of the machine than is allowed


FORKS = 150
"""More than the suite's policy allows, few enough for any machine."""
BLOCK = 8 << 20


def fork_bomb(told: Told) -> str | None:
    """All at once at the end of the pipe, which ends when we end."""
    reading, writing = os.pipe()
    children: list[int] = []
    try:
        for _ in range(FORKS):
            child = os.fork()
            if child == 0:
                os.close(writing)
                os.read(reading, 1)
                os._exit(0)
            children.append(child)
        return f"{FORKS} processes"
    finally:
        os.close(writing)
        for child in children:
            os.waitpid(child, 0)


def too_much_memory(told: Told) -> str | None:
    """In processes of their own, which may be killed for it; two of them, for limits that only count per process."""
    return _held_by_processes(told, 1)


def too_much_memory_together(told: Told) -> str | None:
    return _held_by_processes(told, 2)


def too_much_memory_in_files(told: Told) -> str:
    path, written = Path("/tmp") / f"{told['token']}-large", 0
    try:
        with path.open("wb") as file:
            while written < told["memory"] + 4 * BLOCK:
                written += file.write(bytes(BLOCK))
        return f"{written} bytes in /tmp"
    finally:
        path.unlink(missing_ok=True)


def _held_by_processes(told: Told, count: int) -> str | None:
    share = (told["memory"] + 8 * BLOCK) // count
    argv = [sys.executable, "-S", "-m", str(__package__), "--hold", str(share)]
    running = [subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(count)]
    held = [process.stdout.readline() for process in running if process.stdout]
    alive = [process.poll() is None for process in running]
    for process in running:
        with suppress(BrokenPipeError):
            process.communicate(b"\n", timeout=20)
    return f"{count} times {share} bytes" if all(b"held" in one for one in held) and all(alive) else None


def hold(size: int) -> None:
    """Allocate and touch; then wait for a line."""
    blocks = []
    for _ in range(size // BLOCK):
        block = mmap.mmap(-1, BLOCK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        for page in range(0, BLOCK, mmap.PAGESIZE):
            block[page] = 1
        blocks.append(block)
    print("held", flush=True)
    sys.stdin.readline()


def many_open_files(told: Told) -> str:
    handles: list[int] = []
    try:
        while len(handles) < told["open_files"] + 16:
            handles.append(os.open("/dev/null", os.O_RDONLY))
        return f"{len(handles)} open files"
    finally:
        for handle in handles:
            os.close(handle)


TOGETHER: tuple[Attempt, ...] = (too_much_memory_together,)
LIMITS: tuple[Attempt, ...] = (many_open_files, fork_bomb, too_much_memory, too_much_memory_in_files, *TOGETHER)


# Other processes, powers of root, devices


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
    lines = Path("/proc/self/status").read_text().splitlines()
    sets = [line.split()[1] for line in lines if line.startswith(("CapPrm", "CapEff", "CapBnd", "CapAmb"))]
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
PRIVILEGE: tuple[Attempt, ...] = (capabilities, privileges_from_files, becoming_root, mounting)
PRIVILEGE += (a_network_namespace, a_user_namespace)
DEVICES: tuple[Attempt, ...] = (making_a_device, physical_memory, kernel_log, disks)


HARMLESS: tuple[Attempt, ...] = (*NETWORK, *FILES, *PROCESSES, *LIMITS)
"""Also on a machine that nothing protects."""
ATTEMPTS: tuple[Attempt, ...] = (*HARMLESS, *PRIVILEGE, *DEVICES)
