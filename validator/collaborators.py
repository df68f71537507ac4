"""What the validator works with outside its own loop."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Self

from chain.records import Pool
from chain.suite import Suite
from runtime.orchestrator_client import OrchestratorClient
from runtime.pool_client import PoolClient
from validator.ballots import BallotBox
from validator.config import ValidatorConfig
from validator.judge_queue import JudgeQueue
from validator.judging import FileJudge, JudgeOne
from validator.sources import Sources
from validator.transaction_tasks import TransactionTasks
from validator.verdict_store import VerdictStore


@dataclass(frozen=True)
class ValidatorCollaborators:
    """`voters`: for each voting key the contracts, sending as it. `wake` is set when there is something to do before
    the next look at the chain."""

    pool_client: PoolClient
    orchestrator: OrchestratorClient
    voters: Mapping[str, Suite]
    ballots: BallotBox
    verdicts: VerdictStore
    queue: JudgeQueue
    tasks: TransactionTasks
    wake: threading.Event

    @classmethod
    def connect(cls, config: ValidatorConfig, judge_one: JudgeOne) -> Self:
        """Those that a configuration names. Raises ConfigError or UnreachableError."""
        accounts = [voter.open() for voter in config.voters]
        pool_client = PoolClient(config, None)
        pool_config = pool_client.pool_config()
        verdicts, wake = VerdictStore(pool_client.home / "verdicts", pool_config.digest), threading.Event()
        judge = FileJudge(
            pool_config,
            config.engine.make(),
            Sources(pool_client.objects),
            partial(pool_client.weights, keep=config.keep_steps),
            verdicts,
            judge_one,
        )
        return cls(
            pool_client=pool_client,
            orchestrator=OrchestratorClient(
                config.orchestrator, accounts[0], pool_client.pool_id, allow_private=config.allow_private_sources
            ),
            voters={str(account.address): pool_client.account_client(account) for account in accounts},
            ballots=BallotBox(pool_client.home / "ballots"),
            verdicts=verdicts,
            queue=JudgeQueue(judge, verdicts, _patience(pool_client.pool(), config.deadline_margin), wake.set),
            tasks=TransactionTasks(2 * len(accounts) + 2),
            wake=wake,
        )

    def close(self) -> None:
        self.tasks.stop()
        self.queue.stop()
        self.orchestrator.close()
        self.pool_client.close()


def _patience(pool: Pool | None, margin: float) -> float:
    """Seconds for which a missing file is asked for: half a commit window, so that the vote is in time."""
    window = pool.terms.commitWindow if pool else 10
    return max(1.0, (window - margin) / 2)
