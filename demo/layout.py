"""Where a demo run keeps things, and which process is which."""

import json
import os
import secrets
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

POOL = 1  # the first pool of a fresh chain


@dataclass(frozen=True)
class NodeSpec:
    """One worker of the demo. `attack` names its transform (see `attacks/`), empty for honest nodes. A `carrier`
    belongs to the pool's owner and cheats on purpose: its files are canaries."""

    name: str
    engine: str
    attack: str = ""
    carrier: bool = False

    @property
    def cheats(self) -> bool:
        return bool(self.attack) and not self.carrier


@dataclass(frozen=True)
class ValidatorSpec:
    """One validator process, how many bonded seats it serves, and what it computes with: engine, and rollouts in one
    pass. `attack`: see `attacks/validator.py`."""

    name: str
    seats: int
    attack: str = ""
    engine: str = "transformers"
    batch: int = 64


@dataclass(frozen=True)
class DemoPlan:
    """Everything that is chosen before the network starts."""

    root: Path
    seed: int
    steps: int
    chain_port: int
    s3_port: int
    http_port: int
    nodes: tuple[NodeSpec, ...]
    validators: tuple[ValidatorSpec, ...]
    chain_id: int = 31337
    created: str = field(default_factory=lambda: datetime.now().isoformat(timespec="seconds"))

    @property
    def rpc_url(self) -> str:
        return f"http://127.0.0.1:{self.chain_port}"

    @property
    def s3_url(self) -> str:
        return f"http://127.0.0.1:{self.s3_port}"

    @property
    def http_url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def deployment(self) -> Path:
        return self.root / "deployment" / "deployment.json"

    def home(self, process: str) -> Path:
        return self.root / "homes" / process

    def log(self, process: str) -> Path:
        return self.root / "logs" / f"{process}.log"

    def config(self, process: str) -> Path:
        return self.root / "configs" / f"{process}.json"

    def write_config(self, process: str, values: dict[str, Any]) -> Path:
        path = self.config(process)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values, indent=2, default=str))
        return path


def new_run_folder(runs: Path, seed: int) -> Path:
    """A fresh `runs/<time>-seed<seed>-<random>`; `runs/latest` points to it."""
    root = runs / f"{datetime.now():%Y%m%d-%H%M%S}-seed{seed}-{secrets.token_hex(2)}"
    root.mkdir(parents=True)
    link = runs / "latest"
    fresh = runs / f".latest-{os.getpid()}"
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(root.name)
    fresh.replace(link)
    return root
