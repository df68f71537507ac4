"""A role's process, isolated from the machine that it runs on: what it may see and use, and how it is started."""

import logging
import os
import resource
import sys
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError

from chain.deployment import Deployment
from engines.torch_process import torch_environment
from protocol.encoding import load_document
from protocol.errors import ConfigError, first_problem, unwritten
from protocol.files import write_atomic
from runtime.entry import end_with_threads, start_logging
from runtime.process import GRACE_SECONDS, IsolatedConfig, make_home
from runtime.signer import SOCKET, SignerServer, SigningRules
from sandbox import launch
from sandbox.bubblewrap import python_mounts
from sandbox.image import copy_made
from sandbox.launch import Choice, choose
from sandbox.policy import MIB, IsolationPolicy, Mode, Mount, NetworkAccess, claims

C = TypeVar("C", bound=IsolatedConfig)
V = TypeVar("V")
log = logging.getLogger("muster.isolation")
INSIDE = "MUSTER_ISOLATED"  # set for a process that is inside already
_CACHE = ".cache"
_PROCESSES, _OPEN_FILES = 4096, 65536
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
# Which GPUs it may use, how they talk to one another, whom it trusts, what it may pay.
_PROXIES = [f"{kind}_PROXY" for kind in ("HTTP", "HTTPS", "ALL", "NO")]
_GIVEN = (
    *("CUDA_VISIBLE_DEVICES", "NCCL_", *_CERTIFICATES, *_PROXIES, *map(str.lower, _PROXIES)),
    *("MUSTER_LOG", "MUSTER_MAX_GAS_PRICE"),
)


def enter(
    config_path: Path,
    kind: type[C],
    role: str,
    rules: Callable[[C, Deployment, list[str]], SigningRules],
    grace: float | None = GRACE_SECONDS,
) -> None:
    """Run the `role` of a configuration isolated as it asks, and end this process with its exit code. Returns if the
    role is to run in this process. `rules`: what the addresses of its keys may sign; `grace`: see `process.serve`.
    Raises ConfigError."""
    if INSIDE in os.environ:
        return
    start_logging()
    config = load_document(config_path, kind)
    choice = choose(config.isolation, config.isolation_image)
    policy = isolation_policy(absolute(config), choice.mode, config_path.absolute())
    unprotected = choice.mode is Mode.PLAIN and config.isolation != "none"
    for line in words(choice, policy):
        log.log(logging.WARNING if unprotected else logging.INFO, "isolation: %s", line)
    if choice.mode is Mode.PLAIN:
        return
    for folder in config.writes:
        make_home(folder)
    _bring_images(config)
    given = absolute(config)
    inside = given.home / "isolated.json"
    write_atomic(inside, given.model_dump_json(indent=2).encode() + b"\n", 0o600)
    python = "python3" if choice.mode.is_container else sys.executable
    argv = (python, "-P", "-m", f"{role}.main", "--config", str(inside))
    accounts = [key.open() for key in config.keys]
    signed = rules(config, Deployment.load(config.deployment), [str(account.address) for account in accounts])
    end_with_threads(None)  # nothing is written to the home, where the isolated process may have left a link
    with SignerServer(given.home, accounts, signed):
        code = launch.run(launch.Launch(choice.mode, policy, argv, config.isolation_image), grace)
    sys.exit(code)


def _bring_images(config: IsolatedConfig) -> None:
    """Copy the sandbox images that this user has to the process's cache: building them takes minutes. Nothing is copied
    through a link that an earlier process may have left."""
    home = absolute(config).home
    folder = home / _CACHE / "muster" / "sandbox"
    if folder.resolve() != home.resolve() / _CACHE / "muster" / "sandbox":
        log.warning("%s is a link; remove it: the process makes the sandbox's images itself", folder)
        return
    try:
        copy_made(folder)
    except OSError as error:
        log.warning("%s; the process makes the sandbox's images itself", unwritten(error))


def words(choice: Choice, policy: IsolationPolicy) -> list[str]:
    """Return lines that say why no stronger mode is used, the mode, what it protects and what not."""
    refused = [f"not {mode.value}: {why}" for mode, why in choice.why_not.items()]
    protected, unprotected = claims(choice.mode, policy, choice.accounting)
    held = [f"protected: {'; '.join(protected)}"] if protected else []
    return [*refused, choice.mode.value, *held, f"NOT protected: {'; '.join(unprotected)}"]


def absolute(value: V) -> V:
    """Return a configuration whose paths do not depend on the folder that this process is in."""
    changed: Any = value
    match value:
        case Path():
            changed = Path.cwd() / value
        case BaseModel():
            changed = value.model_copy(update={name: absolute(item) for name, item in value})
        case tuple():
            changed = tuple(map(absolute, value))
    return changed  # type: ignore[no-any-return]


def isolation_policy(config: IsolatedConfig, mode: Mode, config_path: Path | None = None) -> IsolationPolicy:
    """Return the policy of an isolated process: what the configuration `writes` is writable, deployment and
    what it `reads` readable, and no other file of the host is there. All paths of the configuration, which lies at
    `config_path`, are absolute. Raises ConfigError for one that cannot be mounted, and for a file that must stay
    outside."""
    files = [file for key in config.keys for file in (key.keystore, key.password_file)]
    for file in filter(None, (*files, config_path) if mode is not Mode.PLAIN else ()):
        for folder in (*config.writes, *config.reads):
            if file.resolve().is_relative_to(folder.resolve()):
                what = f"{file} is in {folder}, which the isolated process can read"
                raise ConfigError(what, 'move the file, or set isolation = "none"')
    try:
        certificates = [Path(os.environ[name]) for name in _CERTIFICATES if Path(os.environ.get(name, "/-")).exists()]
        mounts = [Mount.same(path, writable=True) for path in config.writes]
        mounts += [Mount.same(path) for path in (config.deployment, *config.reads, *certificates)]
    except ValidationError as error:
        raise ConfigError(first_problem(error.errors())[1], 'choose another path, or isolation = "none"') from None
    inside_bubblewrap = mode is Mode.BUBBLEWRAP
    return IsolationPolicy(
        network=NetworkAccess.HOST if _needs_host(config) else NetworkAccess.OUTBOUND,
        memory=config.isolation_memory,
        processes=_at_most(resource.RLIMIT_NPROC, _PROCESSES),
        open_files=_at_most(resource.RLIMIT_NOFILE, _OPEN_FILES),
        scratch=min(1024 * MIB, (config.isolation_memory or 4096 * MIB) // 4),
        mounts=(*mounts, *(python_mounts() if inside_bubblewrap else ())),
        gpu=config.engine.device.startswith("cuda"),
        environment=_environment(config, preload=inside_bubblewrap),
        folder=config.home,
    )


def _environment(config: IsolatedConfig, preload: bool) -> dict[str, str]:
    torch = torch_environment(config.engine.threads)
    if not preload:
        torch.pop("LD_PRELOAD", None)
    home = str(config.home)
    own = {"HOME": home, "USER": "muster", "XDG_CACHE_HOME": f"{home}/{_CACHE}", "LANG": "C.UTF-8"}
    given = {name: value for name, value in os.environ.items() if name.startswith((*_GIVEN, *config.environment))}
    return torch | given | own | {INSIDE: "1", SOCKET: f"{home}/signer.sock", "PYTHONUNBUFFERED": "1"}


def _needs_host(config: IsolatedConfig) -> bool:
    reached = config.allow_private_sources or config.listens
    return reached or any(_is_loopback(urlsplit(url).hostname or "") for url in config.urls)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _at_most(kind: int, wanted: int) -> int:
    """Return `wanted`, or the most that this process may give others."""
    hard = resource.getrlimit(kind)[1]
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
