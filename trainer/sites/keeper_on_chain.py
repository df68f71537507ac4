"""What a run's keeper does on chain: it records outer steps, and shows what sites contradict themselves in."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from protocol.sites.outer import OuterState
from trainer.sites.contradiction_watch import ContradictionWatch
from trainer.sites.exchange import SiteExchange
from trainer.sites.run_chain import RunChain, check_audits
from trainer.sites.step_recorder import StepRecorder

_CHAIN_SECONDS, _WATCH_SECONDS = 30.0, 5.0
"""For which a process that ends waits: what was made has to be recorded, what was found is kept."""


@dataclass(frozen=True)
class KeeperOnChain:
    """Two threads, each with an end."""

    recorder: StepRecorder
    contradictions: ContradictionWatch

    @classmethod
    def of(cls, chain: RunChain, exchange: SiteExchange, first: OuterState, home: Path) -> Self:
        """`first`: the run's first state. Asks nobody yet. Raises ConfigError for a run whose stake answers for more
        than its keeper looks at."""
        check_audits(chain.run)
        recorder = StepRecorder(chain, exchange, first, home)
        return cls(recorder, ContradictionWatch(chain, exchange, chain.run.keeper, home))

    def start(self) -> None:
        self.recorder.start()
        self.contradictions.start()

    def finish(self) -> None:
        """The keeper ends: record what is left, for a bounded time."""
        self.recorder.finish(_CHAIN_SECONDS)
        self.contradictions.stop(_WATCH_SECONDS)
