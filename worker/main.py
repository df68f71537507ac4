"""The worker's process, isolated from the machine that it runs on: what it may see and use, and how it is started."""

import logging
import os
import resource
import sys
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import ValidationError

from chain.deployment import Deployment
from engines.torch_process import torch_environment
from protocol.encoding import load_document
from protocol.errors import ConfigError, first_problem, unwritten
from protocol.files import write_atomic
from runtime.entry import end_with_threads, run_role, start_logging
from runtime.process import Daemon, make_home, start
from sandbox import launch
from sandbox.bubblewrap import python_mounts
from sandbox.image import copy_made
from sandbox.launch import Choice, choose
from sandbox.policy import MIB, IsolationPolicy, Mode, Mount, NetworkAccess, claims
from worker.config import WorkerConfig
from worker.signer import SOCKET, SignerServer, SigningRules

log = logging.getLogger("muster.isolation")
INSIDE = "MUSTER_ISOLATED"  # set for a worker that is inside already
_CACHE = ".cache"
_PROCESSES, _OPEN_FILES = 4096, 65536


def enter(config_path: Path) -> None:
    """Run the worker of a configuration isolated as it asks, and end this process with its exit code. Returns if the
    worker is to run in this process. Raises ConfigError."""
    if INSIDE in os.environ:
        return
    start_logging()
    config = load_document(config_path, WorkerConfig)
    choice = choose(config.isolation, config.isolation_image)
    policy = worker_policy(absolute(config), choice.mode, config_path.absolute())
    unprotected = choice.mode is Mode.PLAIN and config.isolation != "none"
    for line in words(choice, policy):
        log.log(logging.WARNING if unprotected else logging.INFO, "isolation: %s", line)
    if choice.mode is Mode.PLAIN:
        return
    make_home(config.home)
    make_home(config.cache)
    _bring_images(config)
    given = absolute(config)
    inside = given.home / "isolated.json"
    write_atomic(inside, given.model_dump_json(indent=2).encode() + b"\n", 0o600)
    python = "python3" if choice.mode.is_container else sys.executable
    argv = (python, "-P", "-m", "worker.main", "--config", str(inside))
    account = config.node.open()
    rules = SigningRules(config, Deployment.load(config.deployment), str(account.address))
    end_with_threads(None)  # nothing is written to the home, where an isolated worker may have left a link
    with SignerServer(given.home, account, rules):
        code = launch.run(launch.Launch(choice.mode, policy, argv, config.isolation_image))
    sys.exit(code)


def _bring_images(config: WorkerConfig) -> None:
    """Copy the sandbox images that this user has to the worker's cache: building them takes minutes. Nothing is copied
    through a link that an earlier worker may have left."""
    home = absolute(config).home
    folder = home / _CACHE / "muster" / "sandbox"
    if folder.resolve() != home.resolve() / _CACHE / "muster" / "sandbox":
        log.warning("%s is a link; remove it: the worker makes the sandbox's images itself", folder)
        return
    try:
        copy_made(folder)
    except OSError as error:
        log.warning("%s; the worker makes the sandbox's images itself", unwritten(error))


def words(choice: Choice, policy: IsolationPolicy) -> list[str]:
    """Return lines that say why no stronger mode is used, the mode, what it protects and what not."""
    refused = [f"not {mode.value}: {why}" for mode, why in choice.why_not.items()]
    protected, unprotected = claims(choice.mode, policy, choice.accounting)
    held = [f"protected: {'; '.join(protected)}"] if protected else []
    return [*refused, choice.mode.value, *held, f"NOT protected: {'; '.join(unprotected)}"]


def absolute(config: WorkerConfig) -> WorkerConfig:
    here = Path.cwd()
    password = config.node.password_file and here / config.node.password_file
    node = config.node.model_copy(update={"keystore": here / config.node.keystore, "password_file": password})
    paths = {name: here / getattr(config, name) for name in ("home", "cache", "deployment")}
    return config.model_copy(update={**paths, "node": node})


def worker_policy(config: WorkerConfig, mode: Mode, config_path: Path | None = None) -> IsolationPolicy:
    """Return the policy of an isolated worker: home and cache are writable, the deployment readable, and no other file
    of the host is there. All paths of the configuration, which lies at `config_path`, are absolute. Raises ConfigError
    for one that cannot be mounted, and for a file that must stay outside."""
    outside = (config.node.keystore, config.node.password_file, config_path) if mode is not Mode.PLAIN else ()
    for file in filter(None, outside):
        for folder in (config.home, config.cache):
            if file.resolve().is_relative_to(folder.resolve()):
                what = f"{file} is in {folder}, which the isolated worker can read and change"
                raise ConfigError(what, 'move the file, or set isolation = "none"')
    try:
        mounts = [Mount.same(path, writable=True) for path in (config.home, config.cache)]
        mounts.append(Mount.same(config.deployment))
    except ValidationError as error:
        raise ConfigError(first_problem(error.errors())[1], 'choose another path, or isolation = "none"') from None
    inside_bubblewrap = mode is Mode.BUBBLEWRAP
    return IsolationPolicy(
        network=NetworkAccess.HOST if _needs_loopback(config) else NetworkAccess.OUTBOUND,
        memory=config.isolation_memory,
        processes=_at_most(resource.RLIMIT_NPROC, _PROCESSES),
        open_files=_at_most(resource.RLIMIT_NOFILE, _OPEN_FILES),
        scratch=min(1024 * MIB, (config.isolation_memory or 4096 * MIB) // 4),
        mounts=(*mounts, *(python_mounts() if inside_bubblewrap else ())),
        gpu=config.engine.device.startswith("cuda"),
        environment=_environment(config, preload=inside_bubblewrap),
        folder=config.home,
    )


def _environment(config: WorkerConfig, preload: bool) -> dict[str, str]:
    torch = torch_environment(config.engine.threads)
    if not preload:
        torch.pop("LD_PRELOAD", None)
    home = str(config.home)
    own = {"HOME": home, "USER": "muster", "XDG_CACHE_HOME": f"{home}/{_CACHE}", "LANG": "C.UTF-8"}
    # Which GPUs it may use, and how they talk to one another.
    gpus = {name: os.environ[name] for name in os.environ if name.startswith(("CUDA_VISIBLE_DEVICES", "NCCL_"))}
    return torch | gpus | own | {INSIDE: "1", SOCKET: f"{home}/signer.sock", "PYTHONUNBUFFERED": "1"}


def _needs_loopback(config: WorkerConfig) -> bool:
    urls = (*config.rpc, config.orchestrator, *config.mirrors)
    return config.allow_private_sources or any(_is_loopback(urlsplit(url).hostname or "") for url in urls)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _at_most(kind: int, wanted: int) -> int:
    """Return `wanted`, or the most that this process may give others."""
    hard = resource.getrlimit(kind)[1]
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


def run(config_path: Path) -> None:
    """Work until SIGINT or SIGTERM, the pool's end (exit code 0) or the node's ejection (exit code 3)."""
    enter(config_path)
    start(config_path, WorkerConfig, build)


def build(config: WorkerConfig) -> Daemon:
    from worker.daemon import Worker
    from worker.submit import WorkerCollaborators

    return Worker(config, WorkerCollaborators.connect(config))


if __name__ == "__main__":
    run_role(run)
