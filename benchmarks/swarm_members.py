"""Members of a swarm in one process: the code of real ones, with a shelf in memory for a bucket and no checkpoints."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from eth_account import Account

from engines.factory import make_engine
from environments.texts import TextEnvironments
from protocol.environments import EnvironmentConfig
from protocol.swarm.document import SwarmDocument
from protocol.swarm.envelope import EnvelopeLimits
from protocol.training import AdamWConfig, OptimizerConfig, TrainConfig
from storage.keys import MissingObjectError
from swarm.assembly import NO_POOL
from swarm.config import MixConfig
from swarm.exchange import envelope_key
from swarm.generation import MemberModel, OwnRounds
from swarm.inbox import EnvelopeInbox
from swarm.inspection import Inspector
from swarm.member import MemberParts, SwarmMember, usual_filters
from swarm.retokenising import Retokeniser
from trainer.learner import Learner
from trainer.tiny_model import END_OF_THOUGHT, tiny_model_config

MAX_NEW_TOKENS, MAX_PROMPT_TOKENS = 64, 96
SAMPLES = 8


def nine_sums() -> tuple[EnvironmentConfig, ...]:
    """Nine tasks of one generator, since the demo's model knows no other: sums of two to four terms, of one digit, of
    one digit and either sign, and of two digits. It was warmed up on three and four terms of one digit."""
    kinds = {
        "plain": {"min_digits": 1, "max_digits": 1},
        "signed": {"min_digits": 1, "max_digits": 1, "allow_negation": True},
        "long": {"min_digits": 2, "max_digits": 2},
    }
    return tuple(
        EnvironmentConfig(
            name="reasoning_gym/chain_sum",
            label=f"{kind}-{terms}",
            params={"min_terms": terms, "max_terms": terms, **params},
        )
        for kind, params in kinds.items()
        for terms in (2, 3, 4)
    )


class ShelfExchange:
    """An exchange in memory that all members of a simulation share."""

    def __init__(self) -> None:
        self.shelf: dict[str, bytes] = {}

    def publish(self, data: bytes) -> str:
        key = envelope_key(data)
        self.shelf[key] = data
        return key

    def keys(self) -> Iterator[str]:
        return iter(self.shelf)

    def get(self, key: str, limit: int) -> bytes:
        if key not in self.shelf:
            raise MissingObjectError(f"no object {key}")
        return self.shelf[key]


@dataclass(frozen=True)
class SwarmCase:
    """`members` of a swarm that take `own` groups of their own and `shared` ones of others for each of `rounds`."""

    own: int
    shared: int
    members: int = 8
    rounds: int = 40

    @property
    def name(self) -> str:
        return f"{self.own}/{self.shared}"

    @property
    def document(self) -> SwarmDocument:
        groups = self.own + self.shared
        return SwarmDocument(
            name="nine sums", environments=nine_sums(), answer_after=END_OF_THOUGHT, groups=groups, samples=SAMPLES
        )


def training(rounds: int) -> TrainConfig:
    """The demo's, with one update a round: others' texts have no earlier policy of one's own to be compared with."""
    optimizer = OptimizerConfig(method=AdamWConfig(learning_rate=1.5e-4))
    return TrainConfig(steps=rounds, files_per_step=1, optimizer=optimizer)


def make_members(case: SwarmCase, base: Path, seed: int, folder: Path) -> list[SwarmMember]:
    """All start from the weights in `base`; their keys, hence their problems and noise, follow from `seed`."""
    document, exchange = case.document, ShelfExchange()
    texts = TextEnvironments(document.environments, document.answer_after)
    limits = EnvelopeLimits.of(NO_POOL, document)
    model = MemberModel(document.pool_config(tiny_model_config(), MAX_NEW_TOKENS, MAX_PROMPT_TOKENS), base)
    accounts = [Account.from_key(bytes([1 + seed, 1 + number]) * 16) for number in range(case.members)]
    addresses = {account.address for account in accounts}
    # What is not on the way in a round is lost to it; no own groups stand in, so that all mixes train on as much.
    mix = MixConfig(own=case.own, shared=case.shared, fill=False, window=2, seconds=3600.0)
    made = []
    for number, account in enumerate(accounts):
        secret = bytes([number]) * 32
        inbox = EnvelopeInbox(Inspector(limits, texts, addresses.__contains__), mix, account.address, secret)
        learner = Learner(base, training(case.rounds), 1.0, seed=seed)
        rounds = OwnRounds(document.digest, account.address, model, texts, document.text_bytes)
        engine = make_engine("transformers", max_batch=128)
        parts = MemberParts(
            account, limits, engine, learner, rounds, inbox, Retokeniser(model), exchange, secret
        )  # fmt: skip
        member = SwarmMember(parts, mix, folder / str(number), usual_filters(mix))
        member.load()
        made.append(member)
    return made
