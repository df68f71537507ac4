"""`--chaos`: `kill -9` every process of a run once, in random order, while it works."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random, SystemRandom

from localnet.supervisor import Supervisor


@dataclass
class Chaos:
    """Kills one process every `interval` seconds until each was hit once; then leaves the run alone."""

    supervisor: Supervisor
    interval: float
    say: Callable[[str], None]
    random: Random = field(default_factory=SystemRandom)
    clock: Callable[[], float] = time.monotonic
    killed: list[str] = field(default_factory=list)
    _next: float = 0.0

    def tick(self) -> None:
        now = self.clock()
        if not self._next:
            self._next = now + self.interval
        if now < self._next:
            return
        alive = [n for n, c in self.supervisor.children.items() if c.pid is not None and n not in self.killed]
        if not alive:
            return
        name = self.random.choice(alive)
        self.say(f"✂ kill -9 {name}")
        self.supervisor.kill(name)
        self.killed.append(name)
        self._next = now + self.interval * self.random.uniform(0.7, 1.3)
