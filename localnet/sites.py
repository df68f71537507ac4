"""`muster demo --sites 2`: the run that the sites take part in, and the kill of each of them during an outer step."""

import hashlib
import json
import time
from collections.abc import Callable
from typing import Any

from chain.indexer.state import State
from localnet.onboarding import KeyRing
from localnet.plan import POOL, DemoPlan
from protocol.config import PoolConfig
from protocol.sites.config import AdmissionConfig, OuterConfig, SitesConfig
from protocol.sites.run import SitesRun

WINDOW_SECONDS = TRAINING_SECONDS = 30


def sites_run(plan: DemoPlan, ring: KeyRing, pools: str, config: PoolConfig) -> SitesRun:
    """One owner's sites, which trust one another: any of them may go on alone, and the outer step is the mean of their
    weights (docs/sites.md)."""
    settings = SitesConfig(
        inner_steps=config.train.minibatches,
        mode="sparse",
        shards=plan.sites if plan.exchange == "shards" else 1,
        window_seconds=WINDOW_SECONDS * plan.patience,
        training_seconds=TRAINING_SECONDS * plan.patience,
        outer=OuterConfig(learning_rate=1.0, momentum=0.0),
        admission=AdmissionConfig(minimum=1, cosine=None),
    )
    return SitesRun(
        name=config.name,
        chain_id=plan.chain_id,
        pools=pools,
        pool=POOL,
        pool_config=config.digest.hex(),
        keeper=ring["owner"].address,
        sites=tuple(ring[name].address for name in plan.site_names),
        seed=hashlib.sha256(f"{config.name}/sites".encode()).hexdigest(),
        work="given",
        exchange=plan.exchange,
        settings=settings,
    )


class SiteKiller:
    """Kills each site once, with SIGKILL and while an outer step is under way: at even intervals of the run."""

    def __init__(
        self,
        plan: DemoPlan,
        kill: Callable[[str], None],
        say: Callable[[str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._plan, self._kill, self._say, self._clock = plan, kill, say, clock
        self.kills: dict[str, float] = {}
        """When each site was killed (Unix time)."""

    def look(self, state: State) -> None:
        names = self._plan.site_names
        if len(self.kills) == len(names):
            return
        name, found = names[len(self.kills)], self._keeper()
        due = self._plan.steps * (len(self.kills) + 1) // (len(names) + 1)
        if found and found["step"] >= due and found["items"] is not None and found["phase"] == "collect":
            self.kills[name] = self._clock()
            self._kill(name)
            self._say(f"✂ kill -9 {name} during outer step {found['step'] + 1}")

    def _keeper(self) -> dict[str, Any]:
        """What the trainer says of the sites, empty while it says nothing."""
        for path in self._plan.home("trainer").glob("*/sites/status.json"):
            return dict(json.loads(path.read_bytes()))
        return {}
