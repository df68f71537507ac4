"""What the worker works with outside its own loop."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from engines.base import Engine
from protocol.config import PoolConfig
from protocol.errors import ConfigError
from protocol.evidence.figures import engine_key
from runtime.orchestrator_client import OrchestratorClient
from runtime.pool_client import PoolClient
from runtime.relay import serve_as_peer
from runtime.weights_ahead import WeightsAhead
from worker.config import WorkerConfig
from worker.journal import Journal
from worker.produce import Producer

MakeProducer = Callable[[PoolConfig, Engine], Producer]


@dataclass(frozen=True)
class WorkerCollaborators:
    """`pool_client` sends as `node`, whose address it is. `ahead` brings weights, as soon as it is started."""

    node: str
    pool_client: PoolClient
    orchestrator: OrchestratorClient
    producer: Producer
    journal: Journal
    ahead: WeightsAhead

    @classmethod
    def connect(cls, config: WorkerConfig, make_producer: MakeProducer = Producer) -> Self:
        """Those that a configuration names. Raises ConfigError or UnreachableError."""
        account = config.node.open()
        client = PoolClient(config, account)
        serve_as_peer(client, account)
        pool_config, ahead = client.pool_config(), WeightsAhead(client, config.poll_seconds)
        # An engine takes seconds to a minute to start: whoever joins downloads meanwhile.
        ahead.start()
        producer = make_producer(pool_config, config.engine.make())
        _refuse_unknown(pool_config, producer.engine)
        producer.prepare()
        return cls(
            str(account.address),
            client,
            OrchestratorClient(
                config.orchestrator, account, client.pool_id, allow_private=config.allow_private_sources
            ),
            producer,
            Journal(client.home / "journal"),
            ahead,
        )

    def close(self) -> None:
        self.ahead.stop()
        self.orchestrator.close()
        self.pool_client.close()


def _refuse_unknown(config: PoolConfig, engine: Engine) -> None:
    """Raises ConfigError for an engine whose files the pool would call malformed."""
    info = engine.info
    if config.evidence and (why := config.evidence.refuses(engine_key(info.name, info.dtype, info.device))):
        raise ConfigError(why, "choose one of these as `engine`, on a machine of that kind")
