"""Where a story told by commands is played: the chain, the executable, everybody's keys."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from chain.deployment import Deployment
from chain.indexer.follower import Follower
from chain.indexer.projection import Projection
from protocol.accounts import LocalAccount
from runtime import keystore
from tests.chain.game import Game
from tests.cli.muster import Key, Muster, make_key
from tests.conftest import Chain, Deployed

SEATS = 2 * 3 + 5
"""As many as the story's pool needs."""


@dataclass
class Stage:
    """The chain, the executable, and everybody's keys; tests of this module run in order and build on one another."""

    chain: Chain
    muster: Muster
    folder: Path
    keys: dict[str, Key] = field(default_factory=dict)

    def key(self, name: str) -> Key:
        if name not in self.keys:
            self.keys[name] = make_key(self.folder, name)
            self.chain.fund(self.keys[name].address)
        return self.keys[name]

    @property
    def voters(self) -> list[Key]:
        return [self.key(f"voter{n}") for n in range(SEATS)]

    @cached_property
    def game(self) -> Game:
        """What people do whose processes are not under test: with pool 1, its seats, and the keys of the commands."""
        assert self.muster.deployment is not None
        deployment, owner = Deployment.load(self.muster.deployment / "deployment.json"), self.account("owner")
        deployed = Deployed(self.chain, owner, deployment, self.folder)
        follower = Follower(self.chain.client(), deployment, self.folder / "game.sqlite")
        game = Game(deployed, Projection(follower), owner, self.account("new-service"), deployed.suite(owner), pool=1)
        for number, voter in enumerate(self.voters):
            (seat,) = game.state.seats_of_voter(voter.address)
            game.voters[seat.seat] = deployed.suite(self.account(f"voter{number}"))
        return game

    def account(self, name: str) -> LocalAccount:
        key = self.key(name)
        return keystore.load(key.path, key.password_file.read_text().strip())

    def mint(self, name: str) -> None:
        """A thousand tokens, from governance."""
        mint = ("--mint", f"{self.key(name).address}=1000")
        self.muster.ok("governance", "propose", *self.key("deployer").options, *mint, "--yes")

    def invite(self, name: str) -> Path:
        """An invite of pool 1 for a node, by the pool's owner."""
        paper = self.folder / f"{name}.invite"
        if not paper.exists():
            words = ("--pool", 1, "--node", self.key(name).address, "--out", paper, "--for", "1h")
            self.muster.ok("pool", "invite", *words, *self.key("owner").options)
        return paper

    def tokens(self, name: str) -> int:
        return int(self.muster.ok("keys", "show", "--keystore", self.key(name).path, "--json").json["base_units"])
