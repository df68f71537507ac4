"""What an operator does when honest work was rejected: dispute it, before the challenge window ends."""

from collections.abc import Callable

from chain.records import Status
from chain.state import State
from demo.onboarding import Onboarding
from demo.plan import POOL
from protocol.errors import MusterError

MARGIN_SECONDS = 3


class Disputer:
    """Acts for the operators of the demo's honest nodes, who know that they did not cheat."""

    def __init__(self, onboarding: Onboarding, say: Callable[[str], None]) -> None:
        self.onboarding, self.say = onboarding, say
        honest = [node.name for node in onboarding.plan.nodes if not node.attack]
        self.clients = {onboarding.ring[f"node-{name}"].address: name for name in honest}
        self.tried: set[int] = set()

    def look(self, state: State) -> None:
        for sub in state.submissions_of(POOL):
            wronged = sub.node in self.clients and sub.status is Status.REJECTED and not sub.disputed
            if wronged and sub.sequence not in self.tried:
                self.tried.add(sub.sequence)
                self._dispute(state, sub.sequence)

    def _dispute(self, state: State, sequence: int) -> None:
        sub = state.submissions[POOL, sequence]
        name = self.clients[sub.node]
        suite = self.onboarding.suite(f"operator-{name}")
        try:
            if suite.client.now() + MARGIN_SECONDS < sub.final_time:
                trial = suite.appeals.dispute(sub).send()
                self.say(f"⚖ {name}'s honest file {sequence} was rejected; its operator disputes (trial {trial})")
        except MusterError as error:
            self.say(f"⚖ {name} could not dispute: {error}")
