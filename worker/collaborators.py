"""What the worker works with outside its own loop."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from engines.base import Engine
from protocol.config import PoolConfig
from runtime.orchestrator_client import OrchestratorClient
from runtime.pool_client import PoolClient
from runtime.relay.peer import serve_as_peer
from worker.config import WorkerConfig
from worker.journal import Journal
from worker.produce import Producer

MakeProducer = Callable[[PoolConfig, Engine], Producer]


@dataclass(frozen=True)
class WorkerCollaborators:
    """`pool_client` sends as `node`, whose address it is."""

    node: str
    pool_client: PoolClient
    orchestrator: OrchestratorClient
    producer: Producer
    journal: Journal

    @classmethod
    def connect(cls, config: WorkerConfig, make_producer: MakeProducer = Producer) -> Self:
        """Those that a configuration names. Raises ConfigError or UnreachableError."""
        account = config.node.open()
        client = PoolClient(config, account)
        serve_as_peer(client, account)
        return cls(
            str(account.address),
            client,
            OrchestratorClient(
                config.orchestrator, account, client.pool_id, allow_private=config.allow_private_sources
            ),
            make_producer(client.pool_config(), config.engine.make()),
            Journal(client.home / "journal"),
        )

    def close(self) -> None:
        self.orchestrator.close()
        self.pool_client.close()
