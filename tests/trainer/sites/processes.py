"""`muster site run` as processes over a real bucket, of a run whose keeper is in this process."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.site_faults import ROOT
from engines.loading import load_model
from protocol.files import write_atomic
from protocol.sites.outer import OuterState
from protocol.sites.run import SitesRun
from runtime.keystore import store
from storage.s3 import Bucket, S3Settings
from tests.trainer.sites.world import KEEPER
from trainer.sites.exchange import SiteExchange
from trainer.sites.keeper import SitesKeeper
from trainer.sites.model_tensors import model_tensors
from trainer.sites.turns import keep

_PASSWORD = "correct horse battery"


@dataclass
class RunOfProcesses:
    """`run`: of sites whose keys are 32 times `secret`. `work`: the part of a site's configuration that says what it
    trains on."""

    home: Path
    s3: S3Settings
    run: SitesRun
    base: Path
    work: dict[str, Any]
    secrets: tuple[int, ...]
    steps: int = 0
    started: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def start(self, number: int) -> "subprocess.Popen[bytes]":
        """Site `number`, in a session of its own."""
        name = f"site-{number}"
        key, config = self.home / f"{name}.key.json", self.home / f"{name}.json"
        if not key.exists():
            write_atomic(self.home / "password", _PASSWORD.encode(), 0o600)
            store(key, bytes([self.secrets[number]]) * 32, _PASSWORD, work_factor=2)
            (self.home / "run.json").write_text(self.run.model_dump_json())
        values = {
            "home": str(self.home / name), "run": str(self.home / "run.json"), "model": str(self.base),
            "s3": self.s3.model_dump(mode="json"), "steps": self.steps, "poll_seconds": 0.1,
            "key": {"keystore": str(key), "password_file": str(self.home / "password")}, **self.work,
        }  # fmt: skip
        config.write_text(json.dumps(values))
        argv = [sys.executable, "-m", "cli.main", "site", "run", "--config", str(config)]
        with (self.home / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(argv, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
        self.started.append(process)
        return process

    def log(self, number: int) -> str:
        """What a site said, in all its lives."""
        return (self.home / f"site-{number}.log").read_text()

    def status(self, number: int) -> dict[str, Any]:
        path = self.home / f"site-{number}" / "status.json"
        return dict(json.loads(path.read_bytes())) if path.is_file() else {"step": -1, "inner_steps": 0}

    @contextmanager
    def kept(self) -> Iterator[SitesKeeper]:
        """While its keeper works; all that was started is killed in the end."""
        exchange = SiteExchange(Bucket(self.s3), self.run)
        model = load_model(self.base, "float32").requires_grad_(True)
        keeper = SitesKeeper(exchange, KEEPER, OuterState.start(model_tensors(model)), self.home / "keeper")
        stopping = threading.Event()
        keeper.start()
        thread = threading.Thread(target=keep, args=(keeper, stopping, 0.1, lambda: None, self.steps))
        thread.start()
        try:
            yield keeper
        finally:
            for process in self.started:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            stopping.set()
            thread.join(30)
