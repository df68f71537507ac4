"""Starting and stopping a lasting network from outside of it."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from localnet.lasting.folder import LastingSettings, NetworkFolder, choose_port
from localnet.lasting.leftovers import clean_up
from localnet.lasting.network import DRAIN_SECONDS
from localnet.lasting.state import NetworkPhase, NetworkState
from protocol.errors import ConfigError, MusterError
from protocol.waits import wait_for

UP_SECONDS = 1500.0
"""The base model, made once, takes a slow machine minutes; so does policy step 0 of one that is busy."""
DOWN_SECONDS = DRAIN_SECONDS + 60.0
_LONG_LOG = 32 << 20

Say = Callable[[str], None]


def settle_settings(folder: NetworkFolder, wanted: Mapping[str, int | None]) -> LastingSettings:
    """The network's settings: those that it has, or new ones, written down. `wanted`: what a person named. Raises
    ConfigError for what cannot be changed any more."""
    named = {name: value for name, value in wanted.items() if value is not None}
    known = folder.settings()
    if known is None:
        settings = LastingSettings(**{**named, "port": choose_port(folder.root, named.get("port"))})
        folder.make(settings)
        return settings
    for name, value in named.items():
        if getattr(known, name) != value:
            what = f"the network in {folder.root} has --{name} {getattr(known, name)}, which cannot become {value}"
            raise ConfigError(what, "name another --folder, or `muster down --delete` first")
    return known


def bring_up(folder: NetworkFolder, say: Say) -> NetworkState:
    """Start the supervisor unless it runs, and wait until the network is up, saying what it does. Raises MusterError
    with what went wrong."""
    state = _living(folder)
    if state is not None and state.phase is NetworkPhase.STOPPING:
        say("it is being taken down; waiting for that")
        _wait_for_end(folder, state)
        state = None
    started = None if state is not None else _start(folder)
    said, end = "", time.monotonic() + UP_SECONDS
    while time.monotonic() < end:
        state = _living(folder)
        if state is not None and state.phase is NetworkPhase.UP:
            return state
        if state is not None and state.doing != said:
            said = state.doing
            say(said)
        if state is None and started is not None and started.poll() is not None and _living(folder) is None:
            raise _failure(folder, started.pid)
        time.sleep(0.2)
    hint = f"see {folder.supervisor_log}; `muster down` stops it"
    raise MusterError(f"the network is not up after {UP_SECONDS:.0f} s: {said}", hint)


def take_down(folder: NetworkFolder, say: Say) -> None:
    """Ask the supervisor to end, wait until it has, and end whatever a killed one left. Raises MusterError if it does
    not end."""
    state = _living(folder)
    if state is None:
        for name in clean_up(folder.root):
            say(f"left over from a supervisor that was killed, ended now: {name}")
        return
    if state.phase is not NetworkPhase.STOPPING:
        with suppress(ProcessLookupError):
            os.kill(state.pid, signal.SIGTERM)
    said = ""

    def ended() -> bool:
        nonlocal said
        now = _living(folder)
        if now is not None and now.phase is NetworkPhase.STOPPING and now.doing != said:
            said = now.doing
            say(said)
        return now is None

    wait_for("the network to stop", ended, timeout=DOWN_SECONDS, hint=f"see {folder.supervisor_log}")


def delete(folder: NetworkFolder) -> None:
    """Delete a network that is down: chain, keys, files."""
    folder.known_settings()
    shutil.rmtree(folder.root)


def _living(folder: NetworkFolder) -> NetworkState | None:
    state = folder.state()
    return state if state is not None and state.lives() else None


def _wait_for_end(folder: NetworkFolder, state: NetworkState) -> None:
    wait_for(
        "the network to stop", lambda: not state.lives(), timeout=DOWN_SECONDS, hint=f"see {folder.supervisor_log}"
    )


def _start(folder: NetworkFolder) -> "subprocess.Popen[bytes]":
    logs = folder.supervisor_log.parent
    logs.mkdir(parents=True, exist_ok=True)
    for path in logs.glob("*.log"):
        if path.stat().st_size > _LONG_LOG:
            path.replace(path.with_suffix(".log.old"))
    argv = [sys.executable, "-P", "-m", "localnet.lasting.daemon", "--folder", str(folder.root)]
    with folder.supervisor_log.open("ab") as out:
        return subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd="/", start_new_session=True
        )


def _failure(folder: NetworkFolder, pid: int) -> MusterError:
    state = folder.state()
    if state is not None and state.pid == pid and state.problem:
        return MusterError(state.problem)
    if state is not None and state.pid == pid and state.phase is NetworkPhase.DOWN:
        return MusterError("it was taken down while it started", "run `muster up` again")
    lines = folder.supervisor_log.read_text(errors="replace").strip().splitlines()
    last = lines[-1].removeprefix("error: ") if lines else "it said nothing"
    return MusterError(f"the supervisor ended: {last}", f"see {folder.supervisor_log}")
