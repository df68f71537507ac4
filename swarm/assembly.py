"""From a configuration to a member, ready for its next round."""

import logging
import secrets
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from engines.base import Engine
from protocol.files import write_atomic
from protocol.swarm.envelope import EnvelopeLimits
from storage.s3 import Bucket
from swarm.config import SwarmMemberConfig
from swarm.environments import load_swarm
from swarm.evaluation import HeldOut, Measuring
from swarm.exchange import BucketExchange, Exchange, FolderExchange
from swarm.gate_exchange import GateExchange
from swarm.generation import MemberModel, OwnRounds
from swarm.inbox import EnvelopeInbox
from swarm.inspection import Inspector
from swarm.member import MemberParts, SwarmMember, usual_filters
from swarm.plausibility import PlausibilityJudge
from swarm.progress import MemberProgress, SwarmRound
from swarm.retokenising import Retokeniser
from trainer.base_model import base_model
from trainer.learner import Learner

log = logging.getLogger("muster.swarm")


@dataclass(frozen=True)
class AssembledMember:
    """A member and its place on disk."""

    member: SwarmMember
    progress: MemberProgress
    learner: Learner
    inbox: EnvelopeInbox
    measuring: Measuring | None = None

    def round(self, number: int) -> SwarmRound:
        """Round `number`, measured where that is due; the caller writes it down before the next one."""
        if self.measuring is None:
            return self.member.round(number)
        return self.measuring.around(number, self.member.round)


def assemble(config: SwarmMemberConfig, engine: Engine, exchange: Exchange, seed: int = 0) -> AssembledMember:
    """A member that stands where it last wrote down that it stood. `seed`: of a tiny model that is made here."""
    document, texts = load_swarm(config)
    account = config.key.open()
    limits, members = EnvelopeLimits.of(document), frozenset(config.members)
    if isinstance(exchange, GateExchange):
        exchange.sign_as(account)
    pool = document.pool_config(config.model, config.max_new_tokens, config.max_prompt_tokens)
    pool = pool.model_copy(update={"work": pool.work.model_copy(update={"temperature": config.temperature})})
    folder = base_model(config.model, document.environments[0], seed)
    model = MemberModel(pool, folder)
    learner = Learner(folder, config.train, config.temperature, config.model.dtype)
    secret = _secret(config.home / "secret")
    inspector = Inspector(limits, texts, lambda address: not members or address in members)
    inbox = EnvelopeInbox(inspector, config.mix, account.address, secret, config.home / "inbox")
    progress = MemberProgress(config.home, config.checkpoint_every)
    progress.resume(learner, inbox)
    rounds = OwnRounds(document.digest, account.address, model, texts, document.text_bytes)
    judge = PlausibilityJudge.of(config.mix, learner, model)
    retokeniser = Retokeniser(model, config.mix.certainty)
    parts = MemberParts(
        account, limits, engine, learner, rounds, inbox, retokeniser, exchange, secret, judge
    )  # fmt: skip
    member = SwarmMember(parts, config.mix, config.home, usual_filters(config.mix))
    member.load()
    measuring = None
    if config.evaluation.every:
        held_out = HeldOut(document.digest, model, folder, config.evaluation.problems)
        measuring = Measuring(config.evaluation, config.rounds, partial(held_out.reward, engine))
    return AssembledMember(member, progress, learner, inbox, measuring)


def exchange_of(config: SwarmMemberConfig) -> Exchange:
    """Where its envelopes lie."""
    if config.gate is not None:
        return GateExchange(config.gate)
    if config.s3 is not None:
        return BucketExchange(Bucket(config.s3))
    assert config.exchange is not None, "the configuration names one of them"
    return FolderExchange(config.exchange)


def _secret(path: Path) -> bytes:
    """Kept, so that a restart draws as before the kill."""
    if not path.is_file() or len(path.read_bytes()) != 32:
        write_atomic(path, secrets.token_bytes(32), 0o600)
    return path.read_bytes()
