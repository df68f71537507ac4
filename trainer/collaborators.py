"""What the trainer works with outside its own process."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from eth_account.signers.local import LocalAccount

from engines.factory import make_engine
from protocol.config import PoolConfig
from runtime.orchestrator_client import OrchestratorClient
from runtime.pool_client import PoolClient
from runtime.process import EngineConfig
from storage.bucket import Bucket
from trainer.config import TrainerConfig
from trainer.evaluate import held_out_reward

HeldOutReward = Callable[[PoolConfig, Path, int], float]
"""(pool, folder of a policy, its step) → mean task reward on the pool's held-out problems."""


@dataclass(frozen=True)
class TrainerCollaborators:
    """Chain, bucket and service of the pool, the accounts of its owner and of its carrier of canaries (None: there are
    none), and who measures a policy."""

    client: PoolClient
    bucket: Bucket
    account: LocalAccount
    carrier: LocalAccount | None
    orchestrator: OrchestratorClient
    held_out_reward: HeldOutReward

    @classmethod
    def connect(cls, config: TrainerConfig) -> "TrainerCollaborators":
        """Those that a configuration names. Raises ConfigError or UnreachableError."""
        account = config.key.open()
        carrier = config.carrier.open() if config.carrier else None
        client = PoolClient(config, account)
        orchestrator = OrchestratorClient(config.orchestrator, account, client.pool_id, patience=5.0)
        measure = partial(_held_out_reward, config.engine)
        return cls(client, Bucket(config.s3), account, carrier, orchestrator, measure)


def _held_out_reward(engine: EngineConfig, pool: PoolConfig, folder: Path, step: int) -> float:
    runner = make_engine("transformers", pool.model.dtype, engine.device, engine.threads)
    return held_out_reward(runner, pool, folder, step)
