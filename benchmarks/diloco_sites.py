"""Four sites' outer steps in one process, through the code that sites run: every contribution is encoded, signed,
opened as a stranger's, judged, and settled by the schedule's rules. Its bytes are counted on the way.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from protocol.accounts import Account, LocalAccount
from protocol.encoding import sha256_hex
from protocol.identity import PoolId
from protocol.sites.config import SitesConfig
from protocol.sites.contribution import ContributionLimits, open_contribution
from protocol.sites.layout import Tensors, cut
from protocol.sites.outer import OuterState, outer_factors, weighted_sum
from trainer.sites.events import Event, HashesSigned, OuterPhase, PayloadOpened, StepSettled
from trainer.sites.exchange import decoded
from trainer.sites.reduction import Payloads
from trainer.sites.replica import judge, settled_by
from trainer.sites.schedule import Schedule
from trainer.sites.share_of_step import InnerSteps, OwnContribution, make_own

KEYS: tuple[LocalAccount, ...] = tuple(Account.from_key(bytes([number + 1]) * 32) for number in range(4))
SITES: tuple[str, ...] = tuple(key.address for key in KEYS)
POOL = PoolId(31337, "0x" + "22" * 20, 7)


@dataclass(frozen=True)
class OuterFigures:
    """Of one outer step. `size`: elements of the model. `payload`, `document`: bytes of each site's contribution.
    `means`: bytes of each shard's mean, written as a contribution's shard is. `shares`: of each site, what its
    contribution was multiplied by; `excluded`: why another's does not count. `sent`: mean share of elements that are
    not zero."""

    size: int
    inner_steps: int
    payload: Mapping[str, int]
    document: Mapping[str, int]
    means: tuple[int, ...]
    shares: Mapping[str, float]
    excluded: Mapping[str, str]
    sent: float


class FourSites:
    """`owed`: what each site keeps for later in mode `sparse`."""

    def __init__(self, config: SitesConfig, state: OuterState, owed: Mapping[str, Tensors] | None = None) -> None:
        self.config, self.state = config, state
        self.owed: dict[str, Tensors] = dict(owed or {})

    def outer_step(self, inner: Mapping[str, Tensors], tokens: int) -> OuterFigures:
        """`inner`: every site's weights after its inner steps, on `tokens` tokens each. Raises AssertionError if the
        schedule does not settle the step, or none can be made."""
        state = self.state
        limits = ContributionLimits.of(POOL, self.config, state.step, state.digest, state.layout)
        schedule = Schedule(state.digest, state.step, members=frozenset(inner))
        done = InnerSteps(self.config.inner_steps, tokens, 0, tuple(inner))
        made = {
            site: make_own(state, weights, limits, KEYS[SITES.index(site)], done, self.owed.get(site))
            for site, weights in inner.items()
        }
        signed = (HashesSigned(site, state.step, state.digest, one.digest) for site, one in made.items())
        schedule = _told(schedule, *signed)
        schedule = _told(schedule, *(PayloadOpened(site, state.step, one.digest) for site, one in made.items()))
        assert schedule.phase == OuterPhase.SETTLE, f"the schedule stands at {schedule.phase}"
        read = {site: _read(made[site], limits, state) for site in schedule.contributors}
        admitted = judge(state, read, self.config)
        after = settled_by(state, read, admitted, self.config)
        assert after is not None, f"no outer step of these: {admitted.excluded}"
        schedule = _told(schedule, StepSettled(state.step, schedule.attempt, after.digest))
        assert (schedule.step, schedule.digest) == (after.step, after.digest), "the schedule has not advanced"
        figures = OuterFigures(
            state.layout.size,
            self.config.inner_steps,
            {site: sum(map(len, one.payload)) for site, one in made.items()},
            {site: len(one.document) for site, one in made.items()},
            self._means(limits, read, admitted.shares),
            {site: round(float(share), 6) for site, share in admitted.shares.items()},
            admitted.excluded,
            sum(map(_filled, read.values())) / len(read),
        )
        self.owed = {site: one.owed for site, one in made.items() if one.owed is not None and site in admitted.shares}
        self.state = after
        return figures

    def _means(
        self, limits: ContributionLimits, read: Mapping[str, Tensors], shares: Mapping[str, Fraction]
    ) -> tuple[int, ...]:
        """Bytes of each shard's weighted mean, as the site that reduces it would publish it."""
        order = sorted(shares)
        mean = {
            name: weighted_sum([read[site][name] for site in order], outer_factors(shares))
            for name in self.state.weights
        }
        payloads = Payloads(limits, self.state, {}, lambda entry: b"")
        shards = [cut(mean, payloads.pieces(number)) for number in range(self.config.shards)]
        return tuple(len(payloads.write_mean(order[0], number, one)) for number, one in enumerate(shards))


def _read(own: OwnContribution, limits: ContributionLimits, state: OuterState) -> Tensors:
    """What another site makes of it."""
    told = open_contribution(own.document, limits)
    assert [one.sha256 for one in told.shards] == [sha256_hex(one) for one in own.payload], "another payload"
    return decoded(own.payload, told.site, limits, state)


def _told(schedule: Schedule, *events: Event) -> Schedule:
    for event in events:
        schedule = schedule.after(event)
    return schedule


def _filled(tensors: Tensors) -> float:
    total = sum(one.size for one in tensors.values())
    return sum(int(np.count_nonzero(one)) for one in tensors.values()) / total
