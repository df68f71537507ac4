"""The processes behind `node up`, `validator up`, `pool serve` and `pool train`: configuration, start and stop."""

import json
import os
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import typer

from cli.pool.document import fetch_pool_config
from cli.profile import Profile, ProfileKey, Role, find_profile, profile_path
from cli.session import open_session
from engines.torch_process import torch_environment
from protocol.config import PoolConfig
from protocol.encoding import load_document
from protocol.errors import ConfigError, MusterError
from protocol.files import write_file
from runtime.entry import Exit
from runtime.home_status import log_of
from runtime.keystore import address_of
from runtime.process import IsolatedConfig
from runtime.supervisor import Child, Supervisor
from storage.s3 import S3Settings

GOES_ON = "the same command continues where it was"
_POLL_SECONDS, _REPORT_SECONDS, _DRAIN_SECONDS = 1.0, 10.0, 300.0
_ROLES: dict[str, Role] = {"worker": "operator", "validator": "validator"}


def profile_config(process: str) -> Path:
    """Write the configuration of a process and return where. Raises ConfigError, UnreachableError."""
    role = _ROLES.get(process, "owner")
    profile = find_profile(role)
    if profile is None:
        hint = f"pass --config FILE, or: muster init {role}"
        raise ConfigError(f"there is no configuration, and no profile {profile_path(role)}", hint)
    return write_config(profile, process)


def write_config(profile: Profile, process: str, unattended: bool = False) -> Path:
    """Write what the profile says of a process, at every start; `unattended`: nobody is there to be asked for a
    password. Every process has a home of its own within the profile's: an isolated one can write to it, and must not
    be able to change its configuration or its log."""
    path = profile.home / f"{process}.json"
    values = _values(profile, process, unattended) | getattr(profile, process)
    write_file(path, json.dumps(values, indent=2).encode() + b"\n", "check `home` in the profile")
    return path


def _values(profile: Profile, process: str, unattended: bool) -> dict[str, Any]:
    deployment, pool = _needed(profile, "deployment"), _needed(profile, "pool")
    s3 = load_document(_needed(profile, "s3"), S3Settings) if profile.role == "owner" else None
    session, service = open_session(deployment, profile.rpc), profile.service
    common: dict[str, Any] = {"home": str(profile.home / process), "deployment": str(deployment), "pool": pool}
    with closing(session.client):
        common["rpc"] = list(session.client.provider.urls)
        if profile.role == "owner":
            config = PoolConfig.load(_needed(profile, "pool_config"))
        else:
            session.pool(pool)
            service = service or session.state().pools[pool].service_url or _needed(profile, "service")
            config = fetch_pool_config(service, session.suite.court.terms_of(pool).configHash)
    if s3 is not None:
        common["s3"] = s3.model_dump(mode="json")
    if process == "orchestrator":
        return common | {
            "pool_config": str(profile.pool_config),
            "owner": address_of(profile.key.keystore),
            "key": _key(_needed(profile, "service_key")),
            "public_url": service or "",
            **listening(service),
        }
    computing = {
        "cache": str(profile.cache),
        "orchestrator": service or _needed(profile, "service"),
        "allow_private_sources": profile.allow_private_sources,
        "engine": profile.engine.model_dump() | {"dtype": config.model.dtype},
    } | common
    computing |= {"isolation": profile.isolation, "isolation_image": profile.isolation_image}
    if process == "trainer":
        return computing | {"key": _key(profile.key)}
    if process == "validator":
        return computing | {"voters": [_key(key, unattended) for key in profile.voters]}
    return computing | {"node": _key(_needed(profile, "node"), unattended)}


def listening(url: str | None) -> dict[str, int]:
    """Return the port of a plain http URL, which the service listens on; behind a proxy (https) it keeps its own."""
    parts = urlsplit(url or "")
    return {"port": parts.port} if parts.scheme == "http" and parts.port else {}


def _key(key: ProfileKey, unattended: bool = False) -> dict[str, str | None]:
    """Return how a configuration names a key. Raises ConfigError where nobody is there to be asked for its password."""
    if unattended and key.password_file is None:
        what = f"{key.keystore} has no password file, which a process that restarts by itself needs"
        raise ConfigError(what, "write the password into a file of mode 0600 and name it in the profile")
    return {"keystore": str(key.keystore), "password_file": str(key.password_file) if key.password_file else None}


def _needed(profile: Profile, field: str) -> Any:
    if not (value := getattr(profile, field)):
        raise ConfigError(f"the profile names no `{field}`", "set it there, or pass --config FILE")
    return value


class UpProcess:
    """A process under `up` and its restarts."""

    def __init__(self, role: str, profile: Profile, config: Path) -> None:
        argv = [sys.executable, "-P", "-m", f"{role}.main", "--config", str(config)]
        env = dict(os.environ) | {"PYTHONUNBUFFERED": "1"} | torch_environment(profile.engine.threads)
        self.log_path = log_of(profile.home / role)
        final = frozenset({Exit.DONE, Exit.EJECTED})
        self._child = Child(role, argv, self.log_path, env, max_restarts=20, final_exits=final)
        self.supervisor = Supervisor(typer.echo)
        self._stopping, self._at_once = threading.Event(), threading.Event()

    def start(self) -> None:
        self.supervisor.start(self._child)
        typer.echo(f"{self._child.name} started (pid {self._child.pid}), its log: {self.log_path}")

    def run(self, report: Callable[[], str], due: Callable[[], str] = lambda: "") -> int:
        """Run until it ends for good or we are asked to stop; what `report` says every so often is printed when it
        changes. Return its exit code, 0 when stopped by a signal.

        Asked to stop by a signal, it goes on while `due` names something left to do, five minutes at most; a second
        signal stops it at once.
        """
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: (self._at_once if self._stopping.is_set() else self._stopping).set())
        next_report, shown = 0.0, ""
        try:
            while not self._stopping.wait(_POLL_SECONDS):
                self.supervisor.check()
                if self._child.finished:
                    return self._child.process.returncode if self._child.process else 0
                if time.monotonic() >= next_report:
                    next_report = time.monotonic() + _REPORT_SECONDS
                    try:
                        line = report()
                    except (MusterError, OSError, sqlite3.Error) as error:  # a full disk ends no healthy process
                        line = f"trouble: {error}; the process goes on by itself"
                    if line != shown:
                        shown = line
                        typer.echo(line)
            self._drain(due)
        finally:
            self.supervisor.stop()
        typer.echo(f"{self._child.name} stopped; {GOES_ON}")
        return 0

    def _drain(self, due: Callable[[], str]) -> None:
        """Go on until nothing is due any more."""
        end, shown = time.monotonic() + _DRAIN_SECONDS, ""
        while not self._at_once.is_set() and time.monotonic() < end:
            try:
                left = due()
            except (MusterError, OSError, sqlite3.Error) as error:
                typer.echo(f"what is due cannot be seen: {error}", err=True)
                return
            if not left:
                return
            if left != shown:
                shown = left
                typer.echo(f"stopping once this is done, Ctrl-C again stops at once: {left}", err=True)
            self.supervisor.check()
            self._at_once.wait(_POLL_SECONDS)


def isolation_words(config_path: Path, kind: type[IsolatedConfig]) -> str:
    """Return a process's isolation here, and what that protects. Raises ConfigError if it does not work."""
    from runtime.isolation import absolute, isolation_policy, words
    from sandbox.launch import choose

    config = absolute(load_document(config_path, kind))
    choice = choose(config.isolation, config.isolation_image)
    return "\n".join(f"isolation: {line}" for line in words(choice, isolation_policy(config, choice.mode)))
