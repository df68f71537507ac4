"""Members of a swarm of sums, with homes, keys and an exchange."""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from attacks.swarm import POISONS, Poisoner, Text, scored_group
from benchmarks.swarm import MemoryExchange
from engines.hf import TransformersEngine
from environments.pool import TextEnvironments
from protocol.accounts import Account, LocalAccount
from protocol.config import AdamWConfig, OptimizerConfig, ScheduleConfig, TrainConfig
from protocol.errors import UnreachableError
from runtime.keystore import store
from runtime.process import KeyConfig
from swarm.config import MixConfig, SwarmMemberConfig
from swarm.envelope import Envelope, SwarmDocument, round_problem, seal
from swarm.exchange import ListingEntry
from swarm.main import MemberDaemon
from swarm.member import Member, assemble
from swarm.state import JOURNAL, read_journal
from tests.swarm.samples import SUMS
from trainer.model.tiny_model import END_OF_THOUGHT, tiny_model_config

DOCUMENT = SwarmDocument(
    name="sums", environments=(SUMS,), answer_after=END_OF_THOUGHT, groups=6, samples=6, text_bytes=400
)
NO_BUCKET = {"endpoint": "http://127.0.0.1:1", "bucket": "none", "credentials": "none"}
TEXTS = TextEnvironments(DOCUMENT.environments, DOCUMENT.answer_after)
TRAIN = TrainConfig(
    steps=50,
    files_per_step=1,
    optimizer=OptimizerConfig(method=AdamWConfig(learning_rate=1e-3), schedule=ScheduleConfig(warmup_updates=0)),
)


class WorldExchange(MemoryExchange):
    """Cannot be reached while it is `away`."""

    away = False

    def publish(self, data: bytes) -> str:
        self._check()
        return super().publish(data)

    def listed(self) -> Iterator[ListingEntry]:
        self._check()
        return super().listed()

    def _check(self) -> None:
        if self.away:
            raise UnreachableError("the exchange is away")


class SwarmWorld:
    """A folder of members' homes and keys, and an exchange."""

    def __init__(self, root: Path, model: Path) -> None:
        self.root, self.mix = root, MixConfig(own=3, shared=3)
        self.model = tiny_model_config().model_copy(update={"source": str(model)})
        self.exchange = WorldExchange()
        self.document = root / "document.json"
        self.document.write_text(json.dumps(DOCUMENT.model_dump(mode="json")))

    def config(self, name: int, **changes: object) -> SwarmMemberConfig:
        home = self.root / f"member-{name}"
        home.mkdir(exist_ok=True)
        values = {
            "home": home, "document": self.document, "model": self.model, "key": self.key(name),
            "s3": NO_BUCKET, "mix": self.mix, "max_new_tokens": 48, "max_prompt_tokens": 64, "train": TRAIN,
        }  # fmt: skip
        return SwarmMemberConfig.model_validate(values | changes)

    def key(self, name: int) -> KeyConfig:
        keystore, password = self.root / f"key-{name}.json", self.root / f"password-{name}"
        if not keystore.exists():
            password.write_text("correct horse battery staple")
            password.chmod(0o600)
            store(keystore, bytes([name + 7]) * 32, password.read_text(), work_factor=1 << 10)
        return KeyConfig(keystore=keystore, password_file=password)

    def account(self, name: int) -> LocalAccount:
        made: LocalAccount = Account.from_key(bytes([name + 7]) * 32)
        return made

    @property
    def envelopes(self) -> dict[ListingEntry, bytes]:
        return dict(self.exchange.envelopes)

    def share(self, made: Member, envelopes: int = 1) -> list[ListingEntry]:
        """Rounds until so many are shared: in some, all answers to each problem are equally wrong and teach nobody."""
        before = self.envelopes.keys()
        for _ in range(40 * envelopes):
            made.advance()
            if len(new := self.envelopes.keys() - before) == envelopes:
                return sorted(new)
        raise AssertionError("this model answers nothing rightly")

    def envelope(self, name: int, number: int, slots: Sequence[int] = (0,)) -> bytes:
        """What an honest member shares of a round: of each problem a right answer, and wrong ones."""
        account, groups = self.account(name), []
        for slot in slots:
            seed = round_problem(DOCUMENT.digest, account.address, number, slot)
            answers = (TEXTS.problem(seed).answer, *"?" * (DOCUMENT.samples - 1))
            groups.append(scored_group(TEXTS, seed, slot, [Text(DOCUMENT.answer_after + one) for one in answers]))
        document = DOCUMENT.digest.hex()
        return seal(Envelope(document=document, member=account.address, round=number, groups=groups), account)

    def poison(self, name: int, rounds: int = 1, kind: str = "wrong fact") -> list[bytes]:
        """A poisoner's envelopes of so many rounds, in the exchange."""
        made = Poisoner(self.account(name), DOCUMENT, TEXTS, POISONS[kind])
        envelopes = [data for number in range(rounds) if (data := made.envelope(number)) is not None]
        for data in envelopes:
            self.exchange.publish(data)
        return envelopes

    def member(self, name: int, **changes: object) -> Member:
        return assemble(self.config(name, **changes), TransformersEngine(), self.exchange)


def journal(made: Member) -> list[dict[str, Any]]:
    return read_journal(made.progress.home / JOURNAL)


def shared_names(made: Member) -> list[str]:
    """Names of the groups that a member trained on, of which none is there twice."""
    names = [name for line in journal(made) for name in line["shared"]]
    assert len(names) == len(set(names)), "a group was trained on twice"
    return names


def run_rounds(made: Member, rounds: int) -> None:
    """As the process makes them, and its end."""
    MemberDaemon(made, made.progress.next + rounds, 0.0, ExitStack()).run()
