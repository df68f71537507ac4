"""A member's round: take what others shared, draw, make own groups, share, train.

It needs nobody: where the exchange is gone, the round is one of own groups alone."""

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engines.base import Engine
from protocol.accounts import LocalAccount
from protocol.errors import MusterError
from protocol.swarm.envelope import Envelope, EnvelopeLimits, SharedGroup
from protocol.swarm.places import RoundPlaces
from protocol.swarm.sampling import (
    Filter,
    by_plausibility,
    by_record,
    draw,
    evenly,
    per_sharer,
    product,
    with_advantage,
)
from swarm.config import MixConfig
from swarm.exchange import Exchange
from swarm.generation import OwnGroup, OwnRounds
from swarm.inbox import EnvelopeInbox
from swarm.inspection import FoundGroup
from swarm.outbox import EnvelopeOutbox
from swarm.plausibility import PlausibilityJudge
from swarm.progress import SwarmRound
from swarm.retokenising import Retokeniser
from trainer.batch import Group
from trainer.learner import Learner

log = logging.getLogger("muster.swarm")


@dataclass(frozen=True)
class MemberParts:
    """What a member works with. `secret`: 32 bytes that seed its draws and that nobody else has. `judge`: None where
    anything that is true is trained on."""

    account: LocalAccount
    limits: EnvelopeLimits
    engine: Engine
    learner: Learner
    rounds: OwnRounds
    inbox: EnvelopeInbox
    retokeniser: Retokeniser
    exchange: Exchange
    secret: bytes
    judge: PlausibilityJudge | None = None


@dataclass
class _Drawn:
    """What a round takes of others, and the names of what was looked at and left."""

    chosen: list[tuple[FoundGroup, Group]] = field(default_factory=list)
    unfit: list[str] = field(default_factory=list)
    doubted: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        return [found.offer.name for found, _ in self.chosen]


class SwarmMember:
    """One member. `home` keeps its outbox and the policy it generates with."""

    def __init__(
        self, parts: MemberParts, mix: MixConfig, home: Path, filters: Callable[[EnvelopeInbox], list[Filter]]
    ):
        self.parts, self._mix, self._home, self._filters = parts, mix, home, filters
        self._outbox = EnvelopeOutbox(home / "outbox", parts.account)
        self.alone = False

    def load(self) -> None:
        """Let the engine generate with the learner's weights."""
        self.parts.engine.load(self.parts.learner.policy.export(self._home / "policy"))

    def round(self, number: int) -> SwarmRound:
        """Train on the groups of round `number`; the caller writes it down before the next one."""
        parts, mix = self.parts, self._mix
        taken = self._meet(number)
        slots = range(parts.limits.groups)
        # Own groups come first: they say what the policy of this round would say.
        own = parts.rounds.make(parts.engine, number, slots[: mix.own])
        drawn = self._draw(number, own)
        if mix.fill:
            own += parts.rounds.make(parts.engine, number, slots[mix.own : mix.total - len(drawn.chosen)])
        self._share(number, own)
        parts.inbox.use(drawn.names, drawn.unfit, drawn.doubted)
        if parts.judge is not None:
            parts.inbox.state.shapes = parts.judge.usual_with(parts.inbox.state.shapes, own)
        metrics = parts.learner.train_step([one.group for one in own] + [group for _, group in drawn.chosen])
        self.load()
        reward = sum(one.reward for one in own) / max(1, len(own))
        log.info(
            "round %d: reward %.3f of %d own groups, %d shared ones, %d doubted, %d envelopes taken, gradient %.3f%s",
            number, reward, len(own), len(drawn.chosen), len(drawn.doubted), taken, metrics.grad_norm,
            ", alone" if self.alone else "",
        )  # fmt: skip
        unfit, doubted = len(drawn.unfit), len(drawn.doubted)
        return SwarmRound(
            number, reward, len(own), tuple(drawn.names), metrics.groups_used, unfit, taken, self.alone, doubted=doubted
        )

    def status(self, number: int) -> dict[str, Any]:
        """What others may be shown of it."""
        inbox = self.parts.inbox
        records = {sharer: vars(record) for sharer, record in sorted(inbox.state.records.items())}
        waiting = len(self._outbox.waiting)
        offers = len(inbox.unused())
        address = self.parts.account.address
        return {
            "member": address, "round": number, "alone": self.alone, "offers": offers, "unsent": waiting,
            "sharers": records,
        }  # fmt: skip

    def _meet(self, number: int) -> int:
        """Take what is new, send what waits."""
        taken = 0
        try:
            taken = self._collect(number)
            self._outbox.send(self.parts.exchange)
        except (MusterError, OSError) as error:
            if not self.alone:
                log.warning("going on alone: %s", error)
            self.alone = True
            return taken
        if self.alone:
            log.info("the exchange is back")
        self.alone = False
        return taken

    def _collect(self, number: int) -> int:
        inbox = self.parts.inbox
        try:
            return inbox.collect(self.parts.exchange, number)
        finally:
            self._outbox.found(inbox.own_found)
            inbox.own_found.clear()

    def _draw(self, number: int, own: list[OwnGroup]) -> _Drawn:
        """Shared groups in the order of the draw until there are enough that fit and that the own policy, which has
        just made `own`, finds plausible."""
        parts, mix = self.parts, self._mix
        inbox, judge = parts.inbox, parts.judge
        shapes = [] if judge is None else judge.usual_with(inbox.state.shapes, own)
        drawn, seed = _Drawn(), hashlib.sha256(parts.secret + number.to_bytes(8, "big")).digest()
        lately = inbox.lately()
        places = RoundPlaces(mix.shared, inbox.sharers, lately, mix.even)
        for found in in_order(inbox, self._filters(inbox), seed, mix):
            if not places.left:
                break
            if not places.open_to(found.offer.sharer):
                continue
            name, sharer, group = found.offer.name, found.offer.sharer, parts.retokeniser.group(found)
            if group is None:
                drawn.unfit.append(name)
                continue
            doubt = None if judge is None else judge.doubts(found, group, shapes)
            if doubt is not None:
                log.info("group %s is left out: %s", name, doubt)
                drawn.doubted.append(name)
                continue
            drawn.chosen.append((found, group))
            places.take(sharer)
        return drawn

    def _share(self, number: int, own: list[OwnGroup]) -> None:
        """Put the groups that others can learn from into the outbox, once a round whatever is killed when, and send."""
        groups = [one.shared for one in own if one.shared is not None and one.has_advantage]
        if groups:
            self._outbox.put(self._envelope(number, groups))
        try:
            if not self.alone:
                self._outbox.send(self.parts.exchange)
        except (MusterError, OSError) as error:
            log.warning("round %d is sent later: %s", number, error)
            self.alone = True

    def _envelope(self, number: int, groups: list[SharedGroup]) -> Envelope:
        limits = self.parts.limits
        return Envelope(
            document=limits.document,
            member=self.parts.account.address,
            round=number,
            groups=groups,
        )


def in_order(inbox: EnvelopeInbox, filters: Sequence[Filter], seed: bytes, mix: MixConfig) -> list[FoundGroup]:
    """The groups in the order in which they are looked at, as many as may be: less often those of sharers of whom much
    was doubted."""
    unused = {one.offer.name: one for one in inbox.unused()}
    offers = with_advantage([one.offer for one in unused.values()])
    for keep in filters:
        offers = keep(offers)
    weight = by_plausibility(inbox.state.records)
    if mix.even:
        weight = product(weight, evenly(offers))
    return [unused[offer.name] for offer in draw(offers, mix.judged, seed, weight=weight)]


def usual_filters(mix: MixConfig) -> Callable[[EnvelopeInbox], list[Filter]]:
    """Of sharers who were never found out, the newest groups of each."""
    return lambda inbox: [by_record(inbox.state.records), per_sharer(mix.per_sharer)]
