"""Brings a lasting network up, keeps it up, says how it stands, takes it down without harm."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil

from localnet.base_model import base_model_process, wait_for_folder
from localnet.lasting.folder import LastingSettings, NetworkFolder, check_ports, config_of, plan_of
from localnet.lasting.state import NetworkPhase, NetworkState, process_entries
from localnet.plan import POOL
from localnet.run import Demo
from localnet.supervisor import Child
from protocol.errors import MusterError, UnreachableError
from protocol.files import write_atomic
from protocol.http.transport import tls_context

_LOOK_SECONDS, _WEIGHTS_SECONDS = 0.5, 300.0
DRAIN_SECONDS = 60.0
"""How long files under way are waited for: a seat that voted and does not open its vote in time pays for it."""


class LastingNetwork(Demo):
    """`run` returns when it is told to stop; it raises MusterError only while it starts."""

    def __init__(self, folder: NetworkFolder, settings: LastingSettings) -> None:
        super().__init__(plan_of(folder, settings), config_of(settings))
        self._folder, self._settings = folder, settings
        self._phase, self._doing, self._since, self._problem = NetworkPhase.STARTING, "starting", time.time(), ""
        self._publisher = Publisher(folder, self.standing)
        self.say = self._say

    def serve(self) -> None:
        """From start to end, every change written to the folder."""
        self._publisher.start()
        try:
            self._bring_up()
            self._enter(NetworkPhase.UP, f"dashboard: {self.plan.http_url}/")
            while not self.stop():
                self.network.supervisor.check()
                time.sleep(_LOOK_SECONDS)
            self._enter(NetworkPhase.STOPPING, "stopping the workers")
            self._drain()
        except KeyboardInterrupt:
            self.say("interrupted")
        except MusterError as error:
            self._problem = str(error)
            raise
        finally:
            self._doing = "stopping everything"
            self.network.supervisor.stop()
            self._enter(NetworkPhase.FAILED if self._problem else NetworkPhase.DOWN, "")
            self._publisher.stop()

    def standing(self) -> NetworkState:
        """How everything stands now."""
        children = list(self.network.supervisor.children.values())
        return NetworkState(
            pid=os.getpid(),
            created=psutil.Process().create_time(),
            phase=self._phase,
            doing=self._doing,
            since=self._since,
            problem=self._problem,
            processes=process_entries(children, time.monotonic(), time.time()),
        )

    def _bring_up(self) -> None:
        check_ports(self._settings.ports, "stop what uses it: the network's pool names its ports on its chain")
        opened = self._folder.opened
        if not opened.exists():
            self._folder.forget_run()
        self.start_services()
        base = self._base_model()
        if opened.exists():
            self.say("going on where it was")
            self.network.wait_services()
            self.start_nodes()
            self.network.start_orchestrator(POOL)
        else:
            self.open_pool()
        write_atomic(opened, str(base).encode())
        self.network.start_trainer(POOL, base)
        self._wait_for_weights()

    def _wait_for_weights(self) -> None:
        """Nobody can join before there are any."""
        what = "the trainer to publish policy step 0"
        self.say(f"waiting for {what}")
        self.network.wait(what, self._has_weights, "trainer", _WEIGHTS_SECONDS)

    def _has_weights(self) -> bool:
        try:
            return service_status(self.plan.http_url)["step"] is not None
        except (UnreachableError, KeyError):
            return False

    def _base_model(self) -> Path:
        """Made once, then where it was: its process takes seconds even if the model is in the cache."""
        if self._folder.opened.exists():
            known = Path(self._folder.opened.read_text())
            if known.is_dir():
                return known
        self.say("making the base model")
        supervisor = self.network.supervisor
        process = supervisor.start(
            base_model_process(self.network.config_path, self.plan.seed, self.plan.log("base-model"))
        )
        folder = wait_for_folder(process, self.network.check, self.say)
        del supervisor.children[process.name]
        return folder

    def _drain(self) -> None:
        """No new files; those under way are judged, so that nobody pays for a vote that is not opened."""
        supervisor = self.network.supervisor
        supervisor.stop(only=_is_worker)
        end = time.monotonic() + DRAIN_SECONDS
        while time.monotonic() < end:
            supervisor.check()
            left = self._files_in_votes()
            if left == 0:
                return
            self._doing = f"waiting for the votes on {left} files" if left else "waiting for the service"
            time.sleep(_LOOK_SECONDS)
        self.say(f"not waiting longer than {DRAIN_SECONDS:.0f} s for files under way")

    def _files_in_votes(self) -> int | None:
        """How many files wait for a verdict; None while the service does not say."""
        try:
            return int(service_status(self.plan.http_url)["in_flight"]["pending"])
        except (UnreachableError, KeyError):
            return None

    def _enter(self, phase: NetworkPhase, doing: str) -> None:
        self._phase, self._since = phase, time.time()
        self._say(doing or phase)

    def _say(self, text: str) -> None:
        self._doing = text
        self.progress.say(text)


class Publisher:
    """A thread that writes the network's state to its folder whenever it changed: bringing it up takes a while."""

    def __init__(self, folder: NetworkFolder, standing: Callable[[], NetworkState]) -> None:
        self._path, self._standing = folder.state_path, standing
        self._last: NetworkState | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)

    def start(self) -> None:
        self._write()
        self._thread.start()

    def stop(self) -> None:
        """Ends after the last state was written."""
        self._stop.set()
        self._thread.join(timeout=5)
        self._write()

    def _run(self) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            self._write()

    def _write(self) -> None:
        now = self._standing()
        if now != self._last:
            write_atomic(self._path, now.model_dump_json(indent=1).encode())
            self._last = now


def _is_worker(child: Child) -> bool:
    return child.name.startswith("worker-")


def service_status(url: str) -> dict[str, Any]:
    """The service's status document. Raises UnreachableError."""
    try:
        answer = httpx.get(f"{url}/v1/status", timeout=2, trust_env=False, verify=tls_context())
        found: dict[str, Any] = answer.raise_for_status().json()
    except (httpx.HTTPError, ValueError) as error:
        raise UnreachableError(f"the service at {url} does not answer: {error}", "see its log") from None
    return found
