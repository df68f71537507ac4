"""What of this machine a program in bubblewrap may see: the system's programs, Python, muster; never homes or keys."""

import importlib.util
import os
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from sandbox.bubblewrap import HostView
from sandbox.policy import Mount

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
    """The system's programs and libraries, and the settings that these read."""
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
    """The folders of muster's top-level packages."""
    for name in (metadata.distribution("muster").read_text("top_level.txt") or "").split():
        spec = importlib.util.find_spec(name)
        found = map(Path, (spec.submodule_search_locations or ()) if spec else ())
        yield from (folder for folder in found if folder.is_dir())  # an editable installation names a hook, too
