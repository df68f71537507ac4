"""The folder of a lasting local network: what it was made with, its ports, what its supervisor last said."""

import shutil
import zlib
from dataclasses import dataclass
from pathlib import Path

import platformdirs
from pydantic import Field

from localnet.lasting.state import NetworkState
from localnet.plan import DemoPlan, NodeSpec, ValidatorSpec
from localnet.pool import pool_config
from localnet.ports import is_free
from protocol.config import PoolConfig
from protocol.documents import Document, load_document
from protocol.errors import ConfigError
from protocol.files import write_atomic

SEATS = 12
"""Enough for two committees and a jury of the demo's pool, and one to spare."""
_PORTS = 4
_PORT_RANGE = range(21_700, 32_000, _PORTS)
"""Below the ports that Linux gives to outgoing connections: the network's own would take them while it is down."""


class LastingSettings(Document):
    """What a network is made with, for good. `port` is the chain's; storage, service and the trainer's metrics have
    the three after it."""

    workers: int = Field(2, ge=1, le=16)
    validators: int = Field(2, ge=1, le=SEATS)
    steps: int = Field(500, ge=1, le=10_000)
    seed: int = Field(7, ge=0)
    port: int = Field(ge=1024, le=65_532)

    @property
    def ports(self) -> range:
        return range(self.port, self.port + _PORTS)


@dataclass(frozen=True)
class NetworkFolder:
    """A folder that is, or is to become, a network's. `root` is absolute."""

    root: Path

    @classmethod
    def at(cls, path: Path | None) -> "NetworkFolder":
        """The user's own network, `~/.local/share/muster/local` on Linux, unless another folder is named."""
        return cls((path or platformdirs.user_data_path("muster") / "local").expanduser().resolve())

    @property
    def settings_path(self) -> Path:
        return self.root / "network.json"

    @property
    def state_path(self) -> Path:
        return self.root / "supervisor.json"

    @property
    def supervisor_log(self) -> Path:
        return self.root / "logs" / "supervisor.log"

    @property
    def opened(self) -> Path:
        """There once contracts, pool and participants are on the chain; names the base model's folder."""
        return self.root / "opened"

    def settings(self) -> LastingSettings | None:
        """None where there is no network yet. Raises ConfigError for a folder that holds something else."""
        if self.settings_path.exists():
            return load_document(self.settings_path, LastingSettings)
        if self.root.is_dir() and any(self.root.iterdir()):
            raise ConfigError(f"{self.root} is not empty and holds no network", "name another --folder")
        return None

    def known_settings(self) -> LastingSettings:
        """Raises ConfigError where there is no network."""
        found = self.settings()
        if found is None:
            raise ConfigError(f"there is no network in {self.root}", "`muster up` makes one; or name another --folder")
        return found

    def make(self, settings: LastingSettings) -> None:
        """Raises OSError."""
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomic(self.settings_path, settings.model_dump_json(indent=2).encode() + b"\n")

    def state(self) -> NetworkState | None:
        """What its supervisor last wrote."""
        return load_document(self.state_path, NetworkState) if self.state_path.exists() else None

    def forget_run(self) -> None:
        """Delete everything but settings and logs: a first start was interrupted, with nothing to go on with."""
        for name in ("homes", "keys", "deployment", "configs", "pool.json"):
            path = self.root / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def choose_port(root: Path, wanted: int | None) -> int:
    """The first of four free ports: `wanted`, or some that depend on the folder, so that two networks that are down
    rarely choose the same. Raises ConfigError naming the port that is taken."""
    if wanted is not None:
        check_ports(range(wanted, wanted + _PORTS), "choose another --port: it and the three after it have to be free")
        return wanted
    first = zlib.crc32(str(root).encode()) % len(_PORT_RANGE)
    for i in range(len(_PORT_RANGE)):
        port = _PORT_RANGE[(first + i) % len(_PORT_RANGE)]
        if all(map(is_free, range(port, port + _PORTS))):
            return port
    raise ConfigError(f"no four ports in a row are free in {_PORT_RANGE.start}-{_PORT_RANGE.stop}", "pass --port")


def check_ports(ports: range, hint: str) -> None:
    """Raises ConfigError for the first that is taken."""
    for port in ports:
        if not is_free(port):
            raise ConfigError(f"port {port} is in use", hint)


def plan_of(folder: NetworkFolder, settings: LastingSettings) -> DemoPlan:
    """Honest workers and validators only, with windows that forgive a busy laptop."""
    chain, s3, http, metrics = settings.ports
    seats = [SEATS // settings.validators + (i < SEATS % settings.validators) for i in range(settings.validators)]
    return DemoPlan(
        root=folder.root,
        seed=settings.seed,
        steps=settings.steps,
        chain_port=chain,
        s3_port=s3,
        http_port=http,
        nodes=tuple(NodeSpec(str(i + 1), "transformers") for i in range(settings.workers)),
        validators=tuple(ValidatorSpec(str(i + 1), count) for i, count in enumerate(seats)),
        absentee="",
        patience=2,
        lasting=True,
        metrics_port=metrics,
    )


def config_of(settings: LastingSettings) -> PoolConfig:
    return pool_config(settings.seed, settings.steps).model_copy(update={"name": "local"})
