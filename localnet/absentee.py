"""A node that hands in a file which it never uploads: nobody can judge it, so it is late, unpaid and fined."""

import hashlib
from collections.abc import Callable

from chain.contracts.pools import WorkItem
from chain.state import State
from localnet.network import LOCAL
from localnet.onboarding import Onboarding
from localnet.plan import POOL
from protocol.errors import MusterError


class Absentee:
    """Submits one such file, as soon as there is a policy step to work for."""

    def __init__(self, onboarding: Onboarding, say: Callable[[str], None]) -> None:
        self.onboarding, self.say, self.done = onboarding, say, False

    def look(self, state: State) -> None:
        step = state.usable_step(POOL, LOCAL.confirmations)
        if self.done or step is None:
            return
        name = self.onboarding.plan.absentee
        address = self.onboarding.ring[f"node-{name}"].address
        if any(sub.node == address for sub in state.submissions_of(POOL)):
            self.done = True  # in a run that was interrupted since
            return
        root, content = (hashlib.sha256(word).digest() for word in (b"no rows", b"no file"))
        item = WorkItem(root, content, state.pools[POOL].terms.maxUnits, 8)
        try:
            file = self.onboarding.suite(f"node-{name}").pools.submit(POOL, step, 0, item)
            self.say(f"{name} submits file {file.send().sequence}, but uploads nothing")
            self.done = True
        except MusterError as error:
            self.say(f"{name} could not submit: {error}")
