"""A swarm that a real chain knows: members with stake, homes, and an exchange in one folder."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from chain.contracts.swarms import Swarms
from environments.texts import TextEnvironments
from protocol.accounts import LocalAccount
from protocol.swarm.envelope import Envelope, EnvelopeLimits, SharedCompletion, SharedGroup, question_digest, seal
from protocol.swarm.seeds import round_problem
from swarm.assembly import AssembledMember
from swarm.exchange import FolderExchange
from swarm.main import MemberDaemon
from tests.conftest import GRAINS, Deployed
from tests.swarm.world import DOCUMENT, SwarmWorld

STAKE, DELAY = 40 * GRAINS, 3600
TEXTS = TextEnvironments(DOCUMENT.environments, DOCUMENT.answer_after)


class ChainWorld:
    """`world` with swarm number `swarm` of its document on `deployed`."""

    def __init__(self, world: SwarmWorld, deployed: Deployed) -> None:
        self.world, self.deployed = world, deployed
        self.deployment = world.root / "deployment.json"
        deployed.deployment.save(self.deployment)
        self.swarm = self.as_governance.open(DOCUMENT.digest, STAKE, DELAY).send()
        self.limits = EnvelopeLimits.of(self.as_governance.swarm_id(self.swarm), DOCUMENT)
        self.exchange = FolderExchange(world.exchange)

    @property
    def as_governance(self) -> Swarms:
        return self.deployed.suite(self.deployed.governance).swarms

    def join(self, *names: int, blocks: int = 4) -> None:
        """With stake; `blocks` afterwards, by default enough for all to know."""
        for name in names:
            account = self.world.account(name)
            self.deployed.chain.fund(account.address)
            self.deployed.suite(self.deployed.governance).token.mint(account.address, STAKE).send()
            self.of(name).join(self.swarm, STAKE, account.address).send()
        self.deployed.chain.mine(blocks)

    def of(self, name: int) -> Swarms:
        return self.deployed.suite(self.world.account(name)).swarms

    def settings(self, **changes: object) -> dict[str, object]:
        return {
            "deployment": self.deployment,
            "rpc": [self.deployed.chain.url],
            "swarm": self.swarm,
            "roots_every": 2,
            "refresh_seconds": 0.01,
            "confirmations": 2,
            **changes,
        }

    def member(self, name: int, **changes: object) -> AssembledMember:
        chain = self.settings(**changes)
        return self.world.member(name, chain=chain)

    def start_of(self, account: LocalAccount) -> bytes:
        joined = self.as_governance.member_of(self.swarm, account.address).joined_block
        block = self.as_governance.client.block(joined + 1)
        assert block is not None
        return block.hash

    def envelope(self, name: int, number: int, slots: Sequence[int] = (0,), start: bytes | None = None) -> bytes:
        """What an honest member shares of a round: of each problem a right answer, and wrong ones."""
        account = self.world.account(name)
        known = self.start_of(account) if start is None else start
        groups = []
        for slot in slots:
            seed = round_problem(DOCUMENT.digest, account.address, number, slot, known)
            problem = TEXTS.problem(seed)
            texts = [DOCUMENT.answer_after + answer for answer in (problem.answer, *"?" * (DOCUMENT.samples - 1))]
            made = [SharedCompletion(text=text, ended=True, reward=TEXTS.score(seed, text)) for text in texts]
            groups.append(SharedGroup(slot=slot, question=question_digest(problem.question), completions=made))
        place = self.limits.swarm
        return seal(
            Envelope(
                chain_id=place.chain_id,
                swarms=place.swarms,
                swarm=place.swarm,
                document=self.limits.document,
                member=account.address,
                round=number,
                groups=groups,
            ),
            account,
        )

    def share(self, name: int, number: int, slots: Sequence[int] = (0,)) -> str:
        return self.exchange.publish(self.envelope(name, number, slots))


def run_rounds(made: AssembledMember, rounds: int) -> None:
    """As the process makes them, and its end."""
    MemberDaemon(made, made.progress.state.next + rounds, 0.0, ExitStack()).run()


def home_of(world: ChainWorld, name: int) -> Path:
    return world.world.root / f"member-{name}"
