"""Files and settings of the host."""

import os
from contextlib import suppress
from pathlib import Path

from .base import Attempt, Told


def shadow_file(told: Told) -> str | None:
    """The host's: an image may have an own one, without the host's mark."""
    text = Path("/etc/shadow").read_text()
    return "passwords" if text == told["shadow"] else None


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
