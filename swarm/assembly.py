"""From a configuration to a member, ready for its next round."""

import logging
import secrets
from dataclasses import dataclass
from pathlib import Path

from engines.base import Engine
from protocol.files import write_atomic
from protocol.identity import PoolId
from protocol.swarm.envelope import EnvelopeLimits
from storage.bucket import Bucket
from swarm.config import SwarmMemberConfig
from swarm.environments import load_swarm
from swarm.exchange import BucketExchange, Exchange, FolderExchange
from swarm.generation import MemberModel, OwnRounds
from swarm.inbox import EnvelopeInbox
from swarm.inspection import Inspector
from swarm.member import MemberParts, SwarmMember, usual_filters
from swarm.progress import MemberProgress
from swarm.retokenising import Retokeniser
from trainer.basemodel import base_model
from trainer.learner import Learner

log = logging.getLogger("muster.swarm")
NO_POOL = PoolId(0, "0x" + "00" * 20, 0)
"""Of a swarm that no chain knows."""


@dataclass(frozen=True)
class AssembledMember:
    """A member and its place on disk."""

    member: SwarmMember
    progress: MemberProgress
    learner: Learner
    inbox: EnvelopeInbox


def assemble(config: SwarmMemberConfig, engine: Engine, exchange: Exchange, seed: int = 0) -> AssembledMember:
    """A member that stands where it last wrote down that it stood. `seed`: of a tiny model that is made here."""
    document, texts = load_swarm(config)
    account, limits = config.key.open(), EnvelopeLimits.of(NO_POOL, document)
    pool = document.pool_config(config.model, config.max_new_tokens, config.max_prompt_tokens)
    pool = pool.model_copy(update={"work": pool.work.model_copy(update={"temperature": config.temperature})})
    folder = base_model(config.model, document.environments[0], seed)
    model = MemberModel(pool, folder)
    learner = Learner(folder, config.train, config.temperature, config.model.dtype)
    members = frozenset(config.members)
    secret = _secret(config.home / "secret")
    inspector = Inspector(limits, texts, members.__contains__ if members else lambda _: True)
    inbox = EnvelopeInbox(inspector, config.mix, account.address, secret, config.home / "inbox")
    progress = MemberProgress(config.home, config.checkpoint_every)
    progress.resume(learner, inbox)
    rounds = OwnRounds(document.digest, account.address, model, texts, document.text_bytes)
    parts = MemberParts(account, limits, engine, learner, rounds, inbox, Retokeniser(model), exchange, secret)
    member = SwarmMember(parts, config.mix, config.home, usual_filters(config.mix))
    member.load()
    return AssembledMember(member, progress, learner, inbox)


def exchange_of(config: SwarmMemberConfig) -> Exchange:
    """Where its envelopes lie."""
    if config.s3 is not None:
        return BucketExchange(Bucket(config.s3))
    assert config.exchange is not None, "the configuration names one of both"
    return FolderExchange(config.exchange)


def _secret(path: Path) -> bytes:
    """Kept, so that a restart draws as before the kill."""
    if not path.is_file() or len(path.read_bytes()) != 32:
        write_atomic(path, secrets.token_bytes(32), 0o600)
    return path.read_bytes()
