"""Is this machine ready: programs, Python packages, built contracts, file system, ports."""

import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

import cli
from chain.abi import CONTRACTS, abi_folder, artifacts_folder
from cli.doctor.base import Prerequisite, failed, judged, note, ok
from cli.hardware import existing
from localnet.ports import is_free
from localnet.services.chain import find_anvil
from localnet.services.swift_conf import check_attributes

ROOT = Path(cli.__file__).parents[1]
_SETUP = "run `make setup`"


def look(data: Path, ports: Sequence[int]) -> Iterator[Prerequisite]:
    """Every check of the machine; `data` is where a local network would keep its files."""
    yield _python()
    if (ROOT / "Makefile").exists():
        yield from _tools_of_a_checkout()
    yield judged("anvil", lambda: str(find_anvil()))
    yield from _packages()
    yield judged("scoring", _scoring)
    yield _contracts()
    yield judged("xattrs", lambda: _attributes(existing(data)))
    yield _ports(ports)


def _tools_of_a_checkout() -> Iterator[Prerequisite]:
    """What `make setup` needs; an installed muster does not."""
    yield _version("node", "Node.js", 20, "install Node.js 20 or newer")
    yield _version("npm", "npm", 9, "install npm (it comes with Node.js)")
    yield _version("git", "git", 2, "install git")
    yield _compiler()
    yield _forge()


def _python() -> Prerequisite:
    found = platform.python_version()
    if sys.version_info[:2] not in ((3, 11), (3, 12), (3, 13)):
        return failed("python", f"{found} runs this, 3.11 to 3.13 are needed", "make PYTHON=python3.11 setup")
    return ok("python", f"{found} at {sys.executable}")


def _version(program: str, name: str, least: int, hint: str) -> Prerequisite:
    path = shutil.which(program)
    if path is None:
        return failed(program, f"`{program}` is not on the PATH", hint)
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        return failed(program, f"{path} does not run: {error}", hint)
    match = re.search(r"(\d+)(\.\d+)*", said)
    if match is None or int(match[1]) < least:
        return failed(program, f"{name} {match[0] if match else 'of unknown version'} is too old", hint)
    return ok(program, f"{match[0]} at {path}")


def _compiler() -> Prerequisite:
    found = shutil.which("cc") or shutil.which("gcc")
    if found is None:
        return failed("compiler", "no C compiler (`cc`) is on the PATH", "install gcc or clang")
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").exists():
        return failed("compiler", "Python's C headers (Python.h) are missing", "install the python3-dev package")
    return ok("compiler", found)


def _forge() -> Prerequisite:
    local = ROOT / "node_modules" / ".bin" / "forge"
    found = str(local) if local.exists() else shutil.which("forge")
    return ok("forge", found) if found else failed("forge", "Foundry's forge is not installed", _SETUP)


def _packages() -> Iterator[Prerequisite]:
    """Compare installed Python packages with uv.lock; an installation without a checkout has none to compare."""
    lock = ROOT / "uv.lock"
    if not lock.exists():
        yield note("packages", "no lock file beside this installation, nothing to compare")
        return
    locked: dict[str, set[str]] = {}
    for package in tomllib.loads(lock.read_text())["package"]:
        locked.setdefault(package["name"], set()).add(package.get("version", ""))
    installed = {
        re.sub(r"[-_.]+", "-", package.name).lower(): package.version.split("+")[0]
        for package in metadata.distributions()
        if package.name != "muster"
    }
    pinned = {name: version for name, version in installed.items() if name in locked}
    wrong = [
        f"{name} is {version}, locked {' or '.join(sorted(locked[name]))}"
        for name, version in sorted(pinned.items())
        if version not in locked[name]
    ]
    if wrong:
        yield failed("packages", f"{len(wrong)} of {len(pinned)} differ from the lock: {', '.join(wrong[:3])}", _SETUP)
    else:
        yield ok("packages", f"{len(pinned)} packages as locked")


def _scoring() -> str:
    from environments.conformance import QUICK, quick_check

    quick_check()
    return f"{QUICK} problems and answers score as on every machine"


def _contracts() -> Prerequisite:
    missing = [name for name in CONTRACTS if not (abi_folder() / f"{name}.json").exists()]
    if missing:
        return failed("contracts", f"no ABI of {', '.join(missing)} in {abi_folder()}", "install muster again")
    if not all((artifacts_folder() / f"{name}.sol" / f"{name}.json").exists() for name in CONTRACTS):
        return failed("contracts", "the contracts are not compiled", _SETUP)
    return ok("contracts", "compiled")


def _attributes(folder: Path) -> str:
    check_attributes(folder)
    return f"user attributes work in {folder}"


def _ports(ports: Sequence[int]) -> Prerequisite:
    taken = [port for port in ports if not is_free(port)]
    if taken:
        return failed("ports", f"in use: {', '.join(map(str, taken))}", "stop what uses them or choose other ports")
    return ok("ports", f"free: {', '.join(map(str, ports))}" if ports else "none asked for (--port)")
