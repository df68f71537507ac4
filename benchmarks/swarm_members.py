"""Members of a swarm in one process: the code of real ones, with a shelf in memory for a bucket and no checkpoints."""

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from engines.factory import make_engine
from environments.pool import TextEnvironments
from protocol.accounts import Account, LocalAccount
from protocol.environments import EnvironmentConfig
from protocol.swarm.document import SwarmDocument
from protocol.swarm.envelope import EnvelopeLimits
from protocol.training import AdamWConfig, OptimizerConfig, TrainConfig
from storage.keys import MissingObjectError
from swarm.config import MixConfig
from swarm.evaluation import HeldOut
from swarm.exchange import Exchange, place_of
from swarm.generation import MemberModel, OwnRounds
from swarm.inbox import EnvelopeInbox
from swarm.inspection import Inspector
from swarm.listing import ListingEntry
from swarm.member import MemberParts, SwarmMember, usual_filters
from swarm.plausibility import PlausibilityJudge
from swarm.retokenising import Retokeniser
from trainer.learner import Learner
from trainer.tiny_model import END_OF_THOUGHT, tiny_model_config

HELD_OUT = 256
"""Problems on which members are measured."""
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
        self.shelf: dict[ListingEntry, bytes] = {}

    def publish(self, data: bytes) -> str:
        where = place_of(data)
        self.shelf[where] = data
        return where.key

    def listed(self) -> Iterator[ListingEntry]:
        return iter(self.shelf)

    def get(self, entry: ListingEntry, limit: int) -> bytes:
        if entry not in self.shelf:
            raise MissingObjectError(f"no object {entry.place}")
        return self.shelf[entry]


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


def swarm_model(case: SwarmCase, base: Path) -> MemberModel:
    """What all members of a simulation ask and how they decode."""
    return MemberModel(case.document.pool_config(tiny_model_config(), MAX_NEW_TOKENS, MAX_PROMPT_TOKENS), base)


class HeldOutMeasure:
    """The mean held-out reward of all members whose homes are in `folder`, by the policies that they generate with."""

    def __init__(self, case: SwarmCase, base: Path, folder: Path) -> None:
        # Named by the environments alone, for all mixes to be asked the same.
        named = SwarmCase(1, 0).document.digest
        self._held_out = HeldOut(named, swarm_model(case, base), base, HELD_OUT)
        self._engine = make_engine("transformers", max_batch=128)
        self._policies = [folder / str(number) / "policy" for number in range(case.members)]

    def __call__(self) -> float:
        return round(statistics.fmean(map(self._reward, self._policies)), 4)

    def _reward(self, policy: Path) -> float:
        self._engine.load(policy)
        return self._held_out.reward(self._engine)


def training(rounds: int, rate: float = 1.5e-4) -> TrainConfig:
    """The demo's, with one update a round: others' texts have no earlier policy of one's own to be compared with."""
    optimizer = OptimizerConfig(method=AdamWConfig(learning_rate=rate))
    return TrainConfig(steps=rounds, files_per_step=1, optimizer=optimizer)


@dataclass(frozen=True)
class SwarmSettings:
    """What a run's members have in common. `open`: whether strangers' envelopes are read. `only`: of the members those
    that are made."""

    mix: MixConfig
    rate: float = 1.5e-4
    open: bool = False
    only: range | None = None

    @classmethod
    def of(cls, case: SwarmCase) -> "SwarmSettings":
        """As in the paper, where nobody is hostile. What is not on the way in a round is lost to it; no own groups
        stand in, so that all mixes train on as much."""
        mix = MixConfig(
            own=case.own,
            shared=case.shared,
            fill=False,
            window=2,
            seconds=3600.0,
            plausibility=None,
            certainty=None,
            even=False,
        )
        return cls(mix)


def member_account(seed: int, number: int) -> LocalAccount:
    """A key, hence problems and noise, that follows from the run's seed."""
    made: LocalAccount = Account.from_key(bytes([1 + seed, 1 + number]) * 16)
    return made


def make_members(
    case: SwarmCase, base: Path, seed: int, folder: Path, exchange: Exchange | None = None,
    settings: SwarmSettings | None = None, rounds_of: Callable[..., OwnRounds] = OwnRounds,
) -> list[SwarmMember]:  # fmt: skip
    """All start from the weights in `base`."""
    settings = settings or SwarmSettings.of(case)
    kit = MemberKit(case, seed, folder, ShelfExchange() if exchange is None else exchange, settings, rounds_of)
    return [kit.member(number, base) for number in settings.only or range(case.members)]


class MemberKit:
    """What the members of a simulation have in common; their homes are in `folder`."""

    def __init__(
        self, case: SwarmCase, seed: int, folder: Path, exchange: Exchange, settings: SwarmSettings,
        rounds_of: Callable[..., OwnRounds] = OwnRounds,
    ) -> None:  # fmt: skip
        self._case, self._seed, self._folder, self._settings = case, seed, folder, settings
        self._exchange, self._rounds_of = exchange, rounds_of
        self._texts = TextEnvironments(case.document.environments, case.document.answer_after)
        self._limits = EnvelopeLimits.of(case.document)
        self._accounts = [member_account(seed, number) for number in range(case.members)]

    def member(self, number: int, base: Path) -> SwarmMember:
        """One that starts from the weights in `base`."""
        document, settings = self._case.document, self._settings
        account, secret, model = self._accounts[number], bytes([number]) * 32, swarm_model(self._case, base)
        addresses = {one.address for one in self._accounts}
        inspector = Inspector(self._limits, self._texts, (lambda _: True) if settings.open else addresses.__contains__)
        inbox = EnvelopeInbox(inspector, settings.mix, account.address, secret)
        learner = Learner(base, training(self._case.rounds, settings.rate), 1.0, seed=self._seed)
        rounds = self._rounds_of(document.digest, account.address, model, self._texts, document.text_bytes)
        engine = make_engine("transformers", max_batch=128)
        parts = MemberParts(
            account, self._limits, engine, learner, rounds, inbox, Retokeniser(model, settings.mix.certainty),
            self._exchange, secret, PlausibilityJudge.of(settings.mix, learner, model),
        )  # fmt: skip
        made = SwarmMember(parts, settings.mix, self._folder / str(number), usual_filters(settings.mix))
        made.load()
        return made
