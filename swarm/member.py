"""A member's round: take what others shared, draw, make own groups, share, train.

It needs nobody: where the exchange is gone, the round is one of own groups alone."""

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eth_account.signers.local import LocalAccount

from engines.base import Engine
from protocol.errors import MusterError
from protocol.files import write_atomic
from protocol.swarm.envelope import Envelope, EnvelopeLimits, SharedGroup, seal
from protocol.swarm.sampling import Filter, by_record, draw, per_sharer
from swarm.config import MixConfig
from swarm.exchange import Exchange
from swarm.generation import OwnGroup, OwnRounds
from swarm.inbox import EnvelopeInbox
from swarm.inspection import FoundGroup
from swarm.progress import SwarmRound
from swarm.retokenising import Retokeniser
from trainer.learner import Learner
from trainer.rollouts import Group

log = logging.getLogger("muster.swarm")
MAX_UNSENT = 16
"""Envelopes that wait for the exchange to come back; older ones are given up, nobody would draw them any more."""


@dataclass(frozen=True)
class MemberParts:
    """What a member works with. `secret`: 32 bytes that seed its draws and that nobody else has."""

    account: LocalAccount
    limits: EnvelopeLimits
    engine: Engine
    learner: Learner
    rounds: OwnRounds
    inbox: EnvelopeInbox
    retokeniser: Retokeniser
    exchange: Exchange
    secret: bytes


class SwarmMember:
    """One member. `home` keeps its outbox and the policy it generates with."""

    def __init__(
        self, parts: MemberParts, mix: MixConfig, home: Path, filters: Callable[[EnvelopeInbox], list[Filter]]
    ):
        self._parts, self._mix, self._home, self._filters = parts, mix, home, filters
        self._outbox = home / "outbox"
        self._outbox.mkdir(parents=True, exist_ok=True)
        self.alone = False

    def load(self) -> None:
        """Let the engine generate with the learner's weights."""
        self._parts.engine.load(self._parts.learner.policy.export(self._home / "policy"))

    def round(self, number: int) -> SwarmRound:
        """Train on the groups of round `number`; the caller writes it down before the next one."""
        parts, mix = self._parts, self._mix
        taken = self._meet(number)
        drawn, unfit = self._draw(number)
        own_count = mix.total - len(drawn) if mix.fill else mix.own
        slots = range(min(own_count, parts.limits.groups))
        own = parts.rounds.make(parts.engine, number, slots)
        self._share(number, own)
        names = [found.offer.name for found, _ in drawn]
        parts.inbox.use(names, unfit)
        metrics = parts.learner.train_step([one.group for one in own] + [group for _, group in drawn])
        self.load()
        reward = sum(one.reward for one in own) / max(1, len(own))
        log.info(
            "round %d: reward %.3f of %d own groups, %d shared ones, %d envelopes taken, gradient %.3f%s",
            number, reward, len(own), len(names), taken, metrics.grad_norm, ", alone" if self.alone else "",
        )  # fmt: skip
        return SwarmRound(number, reward, len(own), tuple(names), metrics.groups_used, len(unfit), taken, self.alone)

    def status(self, number: int) -> dict[str, Any]:
        """What others may be shown of it."""
        inbox = self._parts.inbox
        records = {sharer: vars(record) for sharer, record in sorted(inbox.state.records.items())}
        waiting = len(self._unsent())
        offers = len(inbox.unused())
        address = self._parts.account.address
        return {
            "member": address, "round": number, "alone": self.alone, "offers": offers, "unsent": waiting,
            "sharers": records,
        }  # fmt: skip

    def _meet(self, number: int) -> int:
        """Send what waits, take what is new."""
        try:
            self._send()
            taken = self._parts.inbox.collect(self._parts.exchange, number)
        except (MusterError, OSError) as error:
            if not self.alone:
                log.warning("going on alone: %s", error)
            self.alone = True
            return 0
        if self.alone:
            log.info("the exchange is back")
        self.alone = False
        return taken

    def _draw(self, number: int) -> tuple[list[tuple[FoundGroup, Group]], list[str]]:
        """Shared groups in the order of the draw until there are enough that fit, and the names of those that did not
        fit."""
        parts, wanted = self._parts, self._mix.shared
        unused = {one.offer.name: one for one in parts.inbox.unused()}
        seed = hashlib.sha256(parts.secret + number.to_bytes(8, "big")).digest()
        offers = [one.offer for one in unused.values()]
        chosen: list[tuple[FoundGroup, Group]] = []
        unfit: list[str] = []
        for offer in draw(offers, len(offers), seed, self._filters(parts.inbox)):
            if len(chosen) == wanted:
                break
            group = parts.retokeniser.group(unused[offer.name])
            if group is None:
                unfit.append(offer.name)
            else:
                chosen.append((unused[offer.name], group))
        return chosen, unfit

    def _share(self, number: int, own: list[OwnGroup]) -> None:
        """Put the groups that others can learn from into the outbox, once a round whatever is killed when, and send."""
        path = self._outbox / f"{number:010d}.json"
        groups = [one.shared for one in own if one.shared is not None and one.has_advantage]
        if groups and not path.exists() and not self._was_sent(number):
            write_atomic(path, seal(self._envelope(number, groups), self._parts.account))
        try:
            if not self.alone:
                self._send()
        except (MusterError, OSError) as error:
            log.warning("round %d is sent later: %s", number, error)
            self.alone = True

    def _envelope(self, number: int, groups: list[SharedGroup]) -> Envelope:
        limits = self._parts.limits
        return Envelope(
            chain_id=limits.pool.chain_id,
            pools=limits.pool.pools,
            pool=limits.pool.pool,
            document=limits.document,
            member=self._parts.account.address,
            round=number,
            groups=groups,
        )

    def _unsent(self) -> list[Path]:
        return sorted(self._outbox.glob("[0-9]*.json"))

    def _was_sent(self, number: int) -> bool:
        mark = self._outbox / "sent"
        return mark.is_file() and int(mark.read_text()) >= number

    def _send(self) -> None:
        """Everything that waits, oldest first. Raises MusterError or OSError where it cannot."""
        waiting = self._unsent()
        for path in waiting[:-MAX_UNSENT]:
            path.unlink()
        for path in waiting[-MAX_UNSENT:]:
            self._parts.exchange.publish(path.read_bytes())
            write_atomic(self._outbox / "sent", str(int(path.stem)).encode())
            path.unlink()


def usual_filters(mix: MixConfig) -> Callable[[EnvelopeInbox], list[Filter]]:
    """Of sharers who were never found out, the newest groups of each."""
    return lambda inbox: [by_record(inbox.state.records), per_sharer(mix.per_sharer)]
