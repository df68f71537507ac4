"""A member's round: collect from peers, make own groups, draw, share, train.

A member waits for nobody: while the exchange is unreachable, it trains on its own groups alone."""

import hashlib
import logging
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from engines.base import Engine
from environments.pool import TextEnvironments
from protocol.accounts import LocalAccount
from protocol.encoding import load_document
from protocol.errors import ConfigError, MusterError, printable
from protocol.files import write_atomic
from storage.s3 import Bucket
from swarm.config import MeasuringConfig, MixConfig, SwarmMemberConfig
from swarm.envelope import Envelope, SharedGroup, SwarmDocument, seal
from swarm.exchange import BucketExchange, Exchange, GateExchange, RefusedForGood, envelope_key
from swarm.generation import HeldOut, MemberModel, OwnGroup, OwnRounds, Retokeniser
from swarm.inbox import EnvelopeInbox, Inspector
from swarm.plausibility import PlausibilityJudge
from swarm.sampling import InspectedGroup, PeerCap, draw, draw_weights, drawable
from swarm.state import MemberProgress, SwarmRound
from trainer.data.batch import Group
from trainer.learner import Learner
from trainer.model.base_model import base_model

log = logging.getLogger("muster.swarm")
JUDGED = 64  # groups of a round at most that are compared with the own policy
MAX_UNSENT = 16  # envelopes that wait for the exchange; older ones are given up, since nobody would draw them any more


class EnvelopeOutbox:
    """Own envelopes on their way, in `folder`. Rounds are signed in ascending order only, so neither a restart nor a
    copy of the folder signs two envelopes of one round, for which receivers would never believe the key again."""

    def __init__(self, folder: Path, account: LocalAccount) -> None:
        self._folder, self._mark, self._account = folder, folder / "signed", account
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def waiting(self) -> list[Path]:
        """Files of the envelopes that wait, oldest first."""
        return sorted(self._folder.glob("[0-9]*.json"))

    @property
    def signed(self) -> int:
        """The newest round that is known to be signed; -1 before the first."""
        return int(self._mark.read_text()) if self._mark.is_file() else -1

    def put(self, envelope: Envelope) -> None:
        """Sign and keep an envelope, unless its round or a later one was signed before."""
        number = envelope.round
        if number <= self.signed:
            if not self._path(number).exists():
                log.info("round %d is not shared: round %d was signed before", number, self.signed)
            return
        # The mark comes first: a kill after it loses an envelope, a kill before it could sign a round twice.
        self._raise_mark(number)
        write_atomic(self._path(number), seal(envelope, self._account))

    def reconcile(self, own: Iterable[tuple[int, str]]) -> None:
        """Account for own envelopes, (round, key), that lie in the exchange: another home signed what is not known
        here, and what waits here for such a round is not sent."""
        for number, key in own:
            path = self._path(number)
            if path.is_file() and envelope_key(path.read_bytes()) != key:
                log.warning("another home signs with this key: round %d is not sent. Run one home per key", number)
                path.unlink()
            if number > self.signed:
                log.warning("another home has signed round %d with this key. Run one home per key", number)
                self._raise_mark(number)

    def send(self, exchange: Exchange) -> None:
        """Send everything that waits. Raise MusterError or OSError if the exchange does not take it now."""
        waiting = self.waiting
        for path in waiting[:-MAX_UNSENT]:
            path.unlink()
        for path in waiting[-MAX_UNSENT:]:
            try:
                exchange.publish(path.read_bytes())
            except RefusedForGood as error:  # it would hold up all later ones
                log.warning("round %d is not shared: %s", int(path.stem), printable(str(error)))
            path.unlink()

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:010d}.json"

    def _raise_mark(self, number: int) -> None:
        write_atomic(self._mark, str(number).encode())


@dataclass
class _Draw:
    """What a round takes of its peers, and the names of groups that it looked at and left out."""

    chosen: list[tuple[InspectedGroup, Group]] = field(default_factory=list)
    unfit: list[str] = field(default_factory=list)
    doubted: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        return [inspected.name for inspected, _ in self.chosen]


@dataclass
class Member:
    """One member. The home of its `progress` also has its outbox and policy. `secret` is 32 bytes that seed its
    draws and that nobody else has. Without a `judge`, every true group may be trained on. `alone` tells whether the
    exchange was unreachable in the last round."""

    account: LocalAccount
    swarm: SwarmDocument
    engine: Engine
    learner: Learner
    own_rounds: OwnRounds
    inbox: EnvelopeInbox
    retokeniser: Retokeniser
    exchange: Exchange
    secret: bytes
    mix: MixConfig
    progress: MemberProgress
    judge: PlausibilityJudge | None = None
    held_out: HeldOut | None = None
    measuring: MeasuringConfig | None = None
    final_round: int = 0
    alone: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._outbox = EnvelopeOutbox(self.progress.home / "outbox", self.account)
        self._refresh_engine()

    def advance(self) -> SwarmRound:
        """Make the next round, measured if that is due, and record it."""
        number = self.progress.next
        before = self._measure(0) if number == 0 else ()
        done = self.run_round(number)
        result = replace(done, held_out=before + self._measure(number + 1))
        self.progress.finished(self.learner, self.inbox, result)
        return result

    def run_round(self, number: int) -> SwarmRound:
        """Train on the groups of round `number`. The caller records the result before the next round."""
        mix = self.mix
        taken = self._collect(number)
        slots = range(self.swarm.groups)
        # Own groups come first: they show what the current policy says.
        own = self.own_rounds.make(self.engine, number, slots[: mix.own])
        drawn = self._draw(number, own)
        if mix.fill:
            own += self.own_rounds.make(self.engine, number, slots[mix.own : mix.total - len(drawn.chosen)])
        self._share(number, own)
        self.inbox.use(drawn.names, drawn.unfit, drawn.doubted)
        if self.judge is not None:
            self.inbox.state.shapes = self.judge.with_own(self.inbox.state.shapes, own)
        metrics = self.learner.train_step([group.group for group in own] + [group for _, group in drawn.chosen])
        self._refresh_engine()
        reward = sum(group.reward for group in own) / max(1, len(own))
        log.info(
            "round %d: reward %.3f of %d own groups, %d shared ones, %d doubted, %d envelopes taken, gradient %.3f%s",
            number, reward, len(own), len(drawn.chosen), len(drawn.doubted), taken, metrics.grad_norm,
            ", alone" if self.alone else "",
        )  # fmt: skip
        return SwarmRound(
            round=number, reward=reward, own=len(own), shared=tuple(drawn.names), signal=metrics.groups_used,
            unfit=len(drawn.unfit), taken=taken, alone=self.alone, doubted=len(drawn.doubted),
        )  # fmt: skip

    def status(self, number: int) -> dict[str, Any]:
        """Return what `muster swarm status` shows after round `number`."""
        return {
            "member": self.account.address,
            "round": number,
            "alone": self.alone,
            "offers": len(self.inbox.unused()),
            "unsent": len(self._outbox.waiting),
            "peers": {peer: vars(record) for peer, record in sorted(self.inbox.state.records.items())},
        }

    def _refresh_engine(self) -> None:
        """Let the engine generate with the learner's weights."""
        self.engine.load(self.learner.policy.export(self.progress.home / "policy"))

    def _measure(self, trained: int) -> tuple[tuple[int, float], ...]:
        """Return (rounds trained, held-out reward) if a measurement is due. A failure is left out: the round is trained
        already and must not be tried again for it."""
        if self.held_out is None or self.measuring is None or not self.measuring.due(trained, self.final_round):
            return ()
        try:
            reward = self.held_out.reward(self.engine)
        except MusterError as error:
            log.warning("not measured after %d rounds: %s", trained, error)
            return ()
        log.info("held-out reward after %d rounds: %.3f of %d problems", trained, reward, self.measuring.problems)
        return ((trained, reward),)

    def _collect(self, number: int) -> int:
        """Take new envelopes and send those that wait; return how many new ones were true."""
        taken = 0
        was_alone = self.alone
        self.alone = False
        try:
            try:
                taken = self.inbox.collect(self.exchange, number)
            finally:
                self._outbox.reconcile(self.inbox.own_found)
                self.inbox.own_found.clear()
            self._outbox.send(self.exchange)
        except (MusterError, OSError) as error:
            self.alone = True
            if not was_alone:
                log.warning("going on alone: %s", error)
            return taken
        if was_alone:
            log.info("the exchange is back")
        return taken

    def _draw(self, number: int, own: list[OwnGroup]) -> _Draw:
        """Take shared groups in the order of the draw until there are enough that fit and that the own policy, which
        has just made `own`, finds plausible."""
        inbox, mix, judge = self.inbox, self.mix, self.judge
        shapes = [] if judge is None else judge.with_own(inbox.state.shapes, own)
        seed = hashlib.sha256(self.secret + number.to_bytes(8, "big")).digest()
        groups = drawable(inbox.unused(), inbox.state.records, mix.per_peer)
        cap = PeerCap(mix.shared, inbox.active_peers, inbox.recent_use(), mix.even)
        drawn = _Draw()
        for inspected in draw(groups, JUDGED, seed, draw_weights(groups, inbox.state.records, mix.even)):
            if not cap.left:
                break
            if not cap.allows(inspected.peer):
                continue
            group = self.retokeniser.group(inspected)
            if group is None:
                drawn.unfit.append(inspected.name)
                continue
            doubt = None if judge is None else judge.doubt(inspected, group, shapes)
            if doubt is not None:
                log.info("group %s is left out: %s", inspected.name, doubt)
                drawn.doubted.append(inspected.name)
                continue
            drawn.chosen.append((inspected, group))
            cap.take(inspected.peer)
        return drawn

    def _share(self, number: int, own: list[OwnGroup]) -> None:
        """Put the groups that peers can learn from into the outbox, once per round whatever is killed when, and
        send."""
        groups: list[SharedGroup] = [group.shared for group in own if group.shared is not None and group.has_advantage]
        if groups:
            document, member = self.swarm.digest.hex(), self.account.address
            self._outbox.put(Envelope(document=document, member=member, round=number, groups=groups))
        try:
            if not self.alone:
                self._outbox.send(self.exchange)
        except (MusterError, OSError) as error:
            log.warning("round %d is sent later: %s", number, error)
            self.alone = True


# From a configuration to a member


def assemble(config: SwarmMemberConfig, engine: Engine, exchange: Exchange | None = None) -> Member:
    """Return the member at its last checkpoint. Without an `exchange` the configured one is opened. Raise MusterError
    for what a user can mend."""
    document, texts = load_swarm(config)
    account = config.key.open()
    exchange = exchange or _open_exchange(config, account)
    pool = document.pool_config(config.model, config.max_new_tokens, config.max_prompt_tokens)
    pool = pool.model_copy(update={"work": pool.work.model_copy(update={"temperature": config.temperature})})
    folder = base_model(config.model, document.environments[0], 0)
    model = MemberModel(pool, folder)
    learner = Learner(folder, config.train, config.temperature, config.model.dtype)
    secret = draw_secret(config.home / "secret")
    inspector = Inspector(document, texts, config.members)
    inbox = EnvelopeInbox(inspector, config.mix, account.address, secret, config.home / "inbox")
    progress = MemberProgress(config.home)
    progress.resume(learner, inbox)
    evaluation, held_out = config.evaluation, None
    if evaluation.every:
        held_out = HeldOut(document.digest, model, folder, evaluation.problems)
    return Member(
        account=account,
        swarm=document,
        engine=engine,
        learner=learner,
        own_rounds=OwnRounds(document.digest, account.address, model, texts, document.text_bytes),
        inbox=inbox,
        retokeniser=Retokeniser(model, config.mix.assumed_behaviour_prob),
        exchange=exchange,
        secret=secret,
        mix=config.mix,
        progress=progress,
        judge=judge_of(config.mix, learner, model),
        held_out=held_out,
        measuring=evaluation,
        final_round=config.rounds,
    )


def load_swarm(config: SwarmMemberConfig) -> tuple[SwarmDocument, TextEnvironments]:
    """Return the swarm's document and its environments on this machine. Raise ConfigError if either is wrong, or if a
    round would make more groups than an envelope may hold."""
    document = load_document(config.document, SwarmDocument)
    if config.mix.total > document.groups:
        raise ConfigError(
            f"a round has {config.mix.own} own and {config.mix.shared} shared groups; this swarm's envelopes hold "
            f"{document.groups}",
            "lower mix.own or mix.shared",
        )
    return document, TextEnvironments(document.environments, document.answer_after)


def judge_of(mix: MixConfig, learner: Learner, model: MemberModel) -> PlausibilityJudge | None:
    """Return the judge that the mix asks for, if any."""
    return PlausibilityJudge(learner, model.end, model.config.work.max_new_tokens) if mix.plausibility else None


def _open_exchange(config: SwarmMemberConfig, account: LocalAccount) -> Exchange:
    if config.gate is not None:
        return GateExchange(config.gate, account)
    assert config.s3 is not None, "the configuration names one exchange"
    return BucketExchange(Bucket(config.s3))


def draw_secret(path: Path) -> bytes:
    """Return the draw's secret, kept so that a restart draws as before the kill."""
    damaged = path.is_file() and len(path.read_bytes()) != 32
    if damaged:
        log.warning("%s is damaged: a new secret replaces it, so the next draws differ", path)
    if damaged or not path.is_file():
        write_atomic(path, secrets.token_bytes(32), 0o600)
    return path.read_bytes()
