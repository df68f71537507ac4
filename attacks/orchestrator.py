"""`python -m attacks.orchestrator --attack 0x… --config orchestrator.json`: does not relay the first files of a node.

It signs their receipts, as everybody's."""

from attacks.base import launch
from chain.indexer.state import State
from orchestrator import main
from orchestrator.config import OrchestratorConfig
from orchestrator.db import SubmissionRow
from orchestrator.relay import Relay

LEFT_OUT = 2


class CensoringRelay(Relay):
    node = ""

    def waiting(self, state: State, now: float) -> list[SubmissionRow]:
        return [row for row in super().waiting(state, now) if row.node != self.node or row.counter >= LEFT_OUT]


def _build(attack: str, config: OrchestratorConfig) -> main.Orchestrator:
    CensoringRelay.node = attack
    setattr(main, "Relay", CensoringRelay)  # noqa: B010
    return main.Orchestrator(config)


if __name__ == "__main__":
    launch(__doc__, OrchestratorConfig, _build, required=True, help="the node's address")
