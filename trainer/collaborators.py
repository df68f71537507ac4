"""What the trainer works with outside its own process."""

from dataclasses import dataclass

from protocol.accounts import LocalAccount
from runtime.orchestrator_client import OrchestratorClient
from runtime.pool_client import PoolClient
from storage.s3 import Bucket
from trainer.config import TrainerConfig
from trainer.evaluate import EvaluationProcess, Evaluator


@dataclass(frozen=True)
class TrainerCollaborators:
    """Chain, bucket and service of the pool, the accounts of its owner and of its carrier of canaries (None: there are
    none), and who measures a policy."""

    client: PoolClient
    bucket: Bucket
    account: LocalAccount
    carrier: LocalAccount | None
    orchestrator: OrchestratorClient
    evaluator: Evaluator

    @classmethod
    def connect(cls, config: TrainerConfig) -> "TrainerCollaborators":
        """Those that a configuration names. Raises ConfigError or UnreachableError."""
        account = config.key.open()
        carrier = config.carrier.open() if config.carrier else None
        client = PoolClient(config, account)
        orchestrator = OrchestratorClient(config.orchestrator, account, client.pool_id, patience=5.0)
        evaluator = EvaluationProcess(config.evaluation, config.engine)
        return cls(client, Bucket(config.s3), account, carrier, orchestrator, evaluator)
