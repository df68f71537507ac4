"""Who disputes: an operator whose honest work was rejected, and a lazy validator that was outvoted."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from chain.records import Status, Submission
from chain.state import State
from localnet.onboarding import Onboarding
from localnet.plan import POOL
from protocol.errors import MusterError
from validator.rounds import deciding_round

MARGIN_SECONDS = 3


class Challenger(ABC):
    """Disputes each file that `wronged` names, once and before its challenge window ends, as the account `as_whom`."""

    def __init__(self, onboarding: Onboarding, say: Callable[[str], None]) -> None:
        self.onboarding, self.say = onboarding, say
        self.tried: set[int] = set()

    def look(self, state: State) -> None:
        for sub in state.submissions_of(POOL):
            if sub.status is Status.REJECTED and not sub.disputed and sub.sequence not in self.tried:
                name, why = self.wronged(state, sub)
                if name:
                    self.tried.add(sub.sequence)
                    self._dispute(sub, name, why)

    @abstractmethod
    def wronged(self, state: State, sub: Submission) -> tuple[str, str]:
        """Whose key disputes the rejected file, empty for nobody, and why."""

    def _dispute(self, sub: Submission, name: str, why: str) -> None:
        suite = self.onboarding.suite(name)
        try:
            if suite.client.now() + MARGIN_SECONDS < sub.final_time:
                trial = suite.appeals.dispute(sub).send()
                self.say(f"⚖ {name} disputes file {sub.sequence} (trial {trial}): {why}")
        except MusterError as error:
            self.say(f"⚖ {name} could not dispute: {error}")


class Disputer(Challenger):
    """Acts for the operators of the demo's honest nodes, who know that they did not cheat."""

    def wronged(self, state: State, sub: Submission) -> tuple[str, str]:
        ring, honest = self.onboarding.ring, [node.name for node in self.onboarding.plan.nodes if not node.attack]
        who = next((name for name in honest if ring[f"node-{name}"].address == sub.node), "")
        return (f"operator-{who}" if who else ""), "honest work was rejected"


class DodgingValidator(Challenger):
    """Acts for the owner of the seat that never looks: whenever it was outvoted on a file that it accepted, which may
    be a canary, it disputes the file at once, for a jury instead of an opening."""

    def wronged(self, state: State, sub: Submission) -> tuple[str, str]:
        name = next(f"validator-{v.name}" for v in self.onboarding.plan.validators if v.attack == "lazy")
        owner, decided = self.onboarding.ring[name].address, deciding_round(state, sub)
        ours = [member for member, seat in enumerate(decided.seats) if state.seats[seat].owner == owner]
        accepted = any(decided.code_at(sub.place, member).is_accept for member in ours)
        return (name if accepted else ""), "its seat accepted the file without a look"
