"""The processes behind `muster node up`, `validator up`, `pool serve` and `pool train`: their configuration from the
profile, and how `up` starts, restarts and stops them."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlsplit

import typer

from cli.pool_document import fetch_pool_config
from cli.profile import Profile, ProfileKey, Role, find_profile, profile_path
from cli.session import open_session
from engines.runtime import torch_environment
from protocol.config import PoolConfig
from protocol.encoding import load_document
from protocol.errors import ConfigError, MusterError
from protocol.files import explained, write_atomic
from runtime.entry import Exit
from runtime.keystore import address_of
from runtime.supervisor import Child, Supervisor
from sandbox.policy import Wanted
from storage.s3 import S3Settings

_POLL_SECONDS, _DRAIN_SECONDS = 1.0, 300.0
_ROLES: dict[str, Role] = {
    "worker": "operator",
    "validator": "validator",
    "trainer": "owner",
    "orchestrator": "owner",
}


def profile_config(process: str) -> Path:
    """Write the configuration of a process and return where. Raises ConfigError for a profile that is not there or
    lacks something, UnreachableError if chain or service cannot say what it computes in."""
    role = _ROLES[process]
    profile = find_profile(role)
    if profile is None:
        hint = f"pass --config FILE, or: muster init {role}"
        raise ConfigError(f"there is no configuration, and no profile {profile_path(role)}", hint)
    if role == "owner":
        return _written(profile, process, owner_values(process, profile))
    return joined_config(profile, unattended=False)


def joined_config(profile: Profile, unattended: bool) -> Path:
    """That of an operator's worker or a validator; `unattended`: nobody is there to be asked for a password."""
    deployment, pool = _needed(profile.deployment, "deployment"), _needed(profile.pool, "pool")
    session = open_session(deployment, profile.rpc)
    session.pool(pool)
    service = profile.service or session.state().pools[pool].service_url
    config = fetch_pool_config(_needed(service, "service"), session.suite.court.terms_of(pool).configHash)
    values = _common(profile, list(session.client.provider.urls), service, config.model.dtype)
    session.client.close()
    if profile.role == "operator":
        node = key_of(_needed(profile.node, "node"), unattended)
        return _written(
            profile,
            "worker",
            values | {"node": node} | {"isolation": profile.isolation, "isolation_image": profile.isolation_image},
        )
    voters = [key_of(one, unattended) for one in profile.voters]
    return _written(profile, "validator", values | {"voters": voters})


def owner_values(process: str, profile: Profile) -> dict[str, Any]:
    """What the trainer or the orchestrator needs. They have homes of their own within the profile's."""
    deployment, pool = _needed(profile.deployment, "deployment"), _needed(profile.pool, "pool")
    s3 = load_document(_needed(profile.s3, "s3"), S3Settings).model_dump(mode="json")
    path, session = _needed(profile.pool_config, "pool_config"), open_session(deployment, profile.rpc)
    rpc, home = list(session.client.provider.urls), str(profile.home / process)
    session.client.close()
    if process == "trainer":
        common = _common(profile, rpc, _needed(profile.service, "service"), PoolConfig.load(path).model.dtype)
        return common | {"home": home, "key": key_of(profile.key), "s3": s3}
    return {
        "home": home,
        "deployment": str(deployment),
        "rpc": rpc,
        "pool": pool,
        "pool_config": str(path),
        "owner": address_of(profile.key.keystore),
        "key": key_of(_needed(profile.service_key, "service_key")),
        "s3": s3,
        "public_url": profile.service or "",
        **_listening(profile.service),
    }


def _listening(url: str | None) -> dict[str, int]:
    """Return the port of a plain http URL, which the service listens on; behind a proxy (https) it keeps its own."""
    parts = urlsplit(url or "")
    return {"port": parts.port} if parts.scheme == "http" and parts.port else {}


def key_of(key: ProfileKey, unattended: bool = False) -> dict[str, str | None]:
    """How a configuration names a key; without a password file the terminal is asked. Raises ConfigError where nobody
    is there to ask."""
    if unattended and key.password_file is None:
        what = f"{key.keystore} has no password file, which a process that restarts by itself needs"
        raise ConfigError(what, "write the password into a file of mode 0600 and name it in the profile")
    return {"keystore": str(key.keystore), "password_file": str(key.password_file) if key.password_file else None}


def _common(profile: Profile, rpc: list[str], service: str, dtype: str) -> dict[str, Any]:
    """What worker, validator and trainer have in common."""
    return {
        "home": str(profile.home),
        "cache": str(profile.cache),
        "deployment": str(profile.deployment),
        "rpc": rpc,
        "pool": profile.pool,
        "orchestrator": service,
        "allow_private_sources": profile.allow_private_sources,
        "engine": profile.engine.model_dump() | {"dtype": dtype},
    }


def _written(profile: Profile, process: str, values: dict[str, Any]) -> Path:
    """Made anew at every start: the profile is what people change."""
    path, own = profile.home / f"{process}.json", getattr(profile, process)
    with explained(f"write {path}", "check `home` in the profile"):
        write_atomic(path, json.dumps(values | own, indent=2).encode() + b"\n")
    return path


def _needed(value: Any, field: str) -> Any:
    if not value:
        raise ConfigError(f"the profile names no `{field}`", "set it there, or pass --config FILE")
    return value


class UpProcess:
    """A process under `up` and its restarts. `run` returns its exit code, 0 when stopped by a signal."""

    def __init__(self, role: str, profile: Profile, config: Path) -> None:
        argv = [sys.executable, "-P", "-m", f"{role}.main", "--config", str(config)]
        env = dict(os.environ) | {"PYTHONUNBUFFERED": "1"} | torch_environment(profile.engine.threads)
        self.log_path = profile.home / "logs" / f"{role}.log"
        final = frozenset({Exit.DONE, Exit.EJECTED})
        self._child = Child(role, argv, self.log_path, env, max_restarts=20, final_exits=final)
        self._supervisor = Supervisor(lambda line: typer.echo(line))
        self._stopping, self._at_once = threading.Event(), threading.Event()

    def start(self) -> None:
        self._supervisor.start(self._child)
        typer.echo(f"{self._child.name} started (pid {self._child.pid}), its log: {self.log_path}")

    def check(self) -> None:
        """Restart it if it died. Raises MusterError once it keeps failing."""
        self._supervisor.check()

    def stop(self) -> None:
        self._supervisor.stop()

    def run(self, report: Callable[[], None], every: float, due: Callable[[], str] = lambda: "") -> int:
        """Run until it ends for good or we are asked to stop; `report` is called every so many seconds.

        Asked to stop by a signal, it goes on while `due` names something left to do, five minutes at most; a second
        signal stops it at once.
        """
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)
        waited = every
        try:
            while not self._stopping.wait(_POLL_SECONDS):
                self._supervisor.check()
                if self._child.finished:
                    return self._child.process.returncode if self._child.process else 0
                waited += _POLL_SECONDS
                if waited >= every:
                    waited = 0.0
                    report()
            self._drain(due)
            return 0
        finally:
            self.stop()

    def _on_signal(self, *_: object) -> None:
        (self._at_once if self._stopping.is_set() else self._stopping).set()

    def _drain(self, due: Callable[[], str]) -> None:
        """Go on until nothing is due any more."""
        end, shown = time.monotonic() + _DRAIN_SECONDS, ""
        while not self._at_once.is_set() and time.monotonic() < end:
            try:
                left = due()
            except MusterError as error:
                typer.echo(f"what is due cannot be seen: {error}", err=True)
                return
            if not left:
                return
            if left != shown:
                shown = left
                typer.echo(f"stopping once this is done, Ctrl-C again stops at once: {left}", err=True)
            self._supervisor.check()
            self._at_once.wait(_POLL_SECONDS)


def with_isolation(profile: Profile, wanted: str | None) -> Profile:
    """The profile with what an option says instead. Raises ConfigError for a word that means nothing."""
    if wanted is None:
        return profile
    if wanted not in get_args(Wanted):
        raise ConfigError(f"there is no isolation {wanted!r}", f"choose one of {', '.join(get_args(Wanted))}")
    return profile.model_copy(update={"isolation": wanted})


def isolation_words(config_path: Path) -> str:
    """The mode that a worker's configuration comes to on this machine, and what that protects. Raises ConfigError when
    the one asked for does not work here."""
    from sandbox.launch import choose
    from worker.config import WorkerConfig
    from worker.main import absolute, words, worker_policy

    config = load_document(config_path, WorkerConfig)
    choice = choose(config.isolation, config.isolation_image)
    return "\n".join(f"isolation: {line}" for line in words(choice, worker_policy(absolute(config), choice.mode)))
