"""A demo run that goes on where an interrupted one stood, in the same folder and at the same ports."""

import json
import shutil
from pathlib import Path

from localnet.plan import POOL, DemoPlan
from localnet.ports import claim_port
from localnet.run import Demo
from protocol.config import PoolConfig
from protocol.files import write_atomic

INTERRUPTED = "interrupted: the same command goes on where this stood"
"""What to say last to who stopped it."""
_OPENED = "opened"
"""A file in the run's folder, which is there once the run has a pool."""


class ResumableDemo(Demo):
    """A run that trains the model folder `base`, which is there already."""

    def __init__(self, plan: DemoPlan, config: PoolConfig, base: Path) -> None:
        super().__init__(plan, config)
        self._base, self._opened = base, plan.root / _OPENED

    def bring_up(self) -> None:
        self.start_services()
        if self._opened.exists():
            self.say(f"going on with {self.plan.root}")
            self.network.wait_services()
            self.start_nodes()
            self.network.start_orchestrator(POOL)
        else:
            self.say(f"run {self.plan.root} · seed {self.plan.seed} · {self.plan.steps} policy steps")
            self.open_pool()
            self._opened.touch()
        self.network.start_trainer(POOL, self._base)


def make_ready(root: Path) -> None:
    """Make the run's folder, or keep it if there is a pool to go on with."""
    if root.exists() and not (root / _OPENED).exists():
        shutil.rmtree(root)
    root.mkdir(parents=True, exist_ok=True)


def kept_ports(path: Path) -> tuple[int, int, int]:
    """Ports of chain, S3 and HTTP: those of the run before, because the pool's announcements name them."""
    known = json.loads(path.read_text()) if path.exists() else [0, 0, 0]
    chain, s3, http = (claim_port(name, port) for name, port in zip(("chain", "s3", "http"), known, strict=True))
    write_atomic(path, json.dumps([chain, s3, http]).encode())
    return chain, s3, http
