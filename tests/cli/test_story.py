"""One story told by commands alone, on a real chain: from an empty chain to everybody's money back home."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pytest

from chain.abi import CONTRACTS
from chain.deployment import Deployment
from chain.indexer.follower import Follower
from chain.indexer.projection import Projection
from chain.indexer.state import group_number
from cli.profile import Profile, ProfileKey, name_pool
from cli.run.up import ValidatorUp
from protocol.accounts import LocalAccount
from protocol.encoding import show_tokens
from protocol.verdict import Code
from runtime import keystore
from tests.chain.game import Game, work
from tests.cli.muster import Key, Muster, make_key
from tests.cli.pool_files import write_pool_files
from tests.conftest import TOKEN, Chain, Deployed

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


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("story")
    chain = Chain().start()
    yield Stage(chain, Muster(folder, rpc=chain.url), folder)
    chain.kill()


def test_deploying_is_planned_done_once_and_not_repeated(stage: Stage) -> None:
    deployer, out = stage.key("deployer"), stage.folder / "deployment"
    order = ("deploy", "--network", "local", *deployer.options, "--out", out)
    planned = stage.muster.ok(*order, "--dry-run", "--json").json
    assert {step["contract"] for step in planned["plan"]} == set(CONTRACTS)
    assert not any(step["exists"] for step in planned["plan"])
    assert not out.exists()
    assert "--yes" in stage.muster.refused(*order)
    done = stage.muster.ok(*order, "--yes", "--json").json
    assert [step["address"] for step in planned["plan"]] == [
        done["contracts"][step["contract"]]["address"] for step in planned["plan"]
    ]
    head = stage.chain.rpc("eth_blockNumber")
    again = stage.muster.ok(*order, "--yes", "--json").json
    assert again["contracts"] == done["contracts"]
    assert stage.chain.rpc("eth_blockNumber") == head
    stage.muster.deployment = out


def test_an_empty_network_has_a_status(stage: Stage) -> None:
    summary = stage.muster.ok("pool", "list", "--json").json
    assert summary["pools"] == []
    assert "no pool yet" in stage.muster.ok("pool", "list").out


def test_an_owner_creates_and_funds_a_pool_that_no_seat_judges_yet(stage: Stage) -> None:
    owner = stage.key("owner")
    stage.mint("owner")
    config, terms = write_pool_files(stage.folder)
    order = ("pool", "create", *owner.options, "--config", config, "--terms", terms, "--budget", "500.5")
    stage.muster.ok(*order, "--dry-run")
    named = ("--service-key", stage.key("service").address, "--url", "https://pool.example/")
    assert "is not the URL of a service" in stage.muster.refused(*order, "--url", "pool.example", "--yes")
    made = stage.muster.ok(*order, *named, "--yes", "--json").json
    assert (made["pool"], made["budget"], len(made["sent"])) == (1, 500_500_000_000, 4)
    stage.muster.ok("pool", "fund", *owner.options, "--pool", 1, "--amount", "0.000000001", "--yes")
    view = stage.muster.ok("pool", "status", "--pool", 1, "--json").json
    assert view["money"]["escrow"] == view["free"] == 500_500_000_001
    assert view["service"] == {"key": stage.key("service").address, "url": "https://pool.example"}
    assert view["seats"] == {"group": "pool 1", "count": 0, "needed": SEATS, "owners": 0}
    assert "understaffed: 0 of 11 seats judge pool 1" in stage.muster.ok("pool", "status", "--pool", 1).out
    assert "pools are 1 to 1" in stage.muster.refused("pool", "pause", *owner.options, "--pool", 7)


def test_on_a_local_chain_an_owner_without_tokens_and_ether_sees_what_creating_would_do(stage: Stage) -> None:
    owner = make_key(stage.folder, "penniless")
    config, terms = write_pool_files(stage.folder)
    order = ("pool", "create", *owner.options, "--config", config, "--terms", terms, "--budget", "500")
    planned = stage.muster.ok(*order, "--dry-run", "--json").json
    assert (planned["dry_run"], planned["base_units"]) == (True, 500 * TOKEN)
    assert len(stage.muster.ok("pool", "list", "--json").json["pools"]) == 1


def test_an_owner_replaces_the_services_key(stage: Stage) -> None:
    change = ("pool", "set-service", "--pool", 1, *stage.key("owner").options)
    assert "nothing to set is named" in stage.muster.refused(*change)
    new = stage.key("new-service").address
    stage.muster.ok(*change, "--service-key", new, "--url", "https://other.example")
    service = stage.muster.ok("pool", "status", "--pool", 1, "--json").json["service"]
    assert service == {"key": new, "url": "https://other.example"}
    assert "TooSoon" in stage.muster.refused(*change, "--service-key", stage.key("service").address)
    foreign = ("pool", "set-service", "--pool", 1, *stage.key("operator").options, "--service-key", new)
    assert "NotOwner" in stage.muster.refused(*foreign)


def test_validators_bond_seats_for_what_they_choose(stage: Stage) -> None:
    validator = stage.key("validator")
    stage.mint("deployer")
    voters = [option for voter in stage.voters for option in ("--voter", voter.address)]
    order = ("validator", "judge", *validator.options, *voters)
    assert "nothing to judge is named" in stage.muster.refused(*order, "--yes")
    assert "there is no pool 9" in stage.muster.refused(*order, "--pool", 9, "--yes")
    chosen = ("--pool", 1, "--group", "qwen3-0.6b")
    poor = stage.muster.refused(*order, *chosen, "--yes")
    assert "has 0 tokens and needs 1100" in poor
    stage.mint("validator")
    sent = ("--to", validator.address, "--amount", "1000", "--yes")
    stage.muster.ok("keys", "send", *stage.key("deployer").options, *sent)
    assert stage.tokens("validator") == 2000 * TOKEN
    plan = stage.muster.ok(*order, *chosen, "--dry-run", "--json").json
    first, bond, *_ = plan["plan"]
    assert sum(move["base_units"] for move in plan["plan"]) == plan["base_units"] == 1100 * TOKEN
    assert (bond["base_units"], bond["gas"]) == (100 * TOKEN, None), "it needs the approval before it"
    assert plan["gas"] == first["gas"] > 30_000
    assert plan["fee_wei"] > 0
    assert "it would cost 1100 tokens and gas" in stage.muster.ok(*order, *chosen, "--dry-run").out
    assert stage.tokens("validator") == 2000 * TOKEN
    done = stage.muster.ok(*order, *chosen, "--yes", "--json").json
    assert (len(done["seats"]), done["groups"]) == (SEATS, [1, group_number("qwen3-0.6b")])
    assert stage.tokens("validator") == 900 * TOKEN
    view = stage.muster.ok("validator", "status", "--address", validator.address, "--json").json
    assert [seat["standing"] for seat in view["seats"]] == ["active"] * SEATS
    assert view["seats"][0]["groups"] == ["pool 1", f"group {group_number('qwen3-0.6b')}"]
    assert view["seats"][0]["pools"] == [1]


def test_seats_opt_in_and_out_of_what_they_judge(stage: Stage) -> None:
    validator = stage.key("validator")
    seats = [own.seat for voter in stage.voters for own in stage.game.state.seats_of_voter(voter.address)]
    out = ("validator", "judge", "--stop", *validator.options, "--group", "qwen3-0.6b")
    stage.muster.ok(*out, "--seat", seats[0], "--seat", seats[1])
    stage.muster.ok(*out)  # the other nine
    assert "none of your seats is left to change" in stage.muster.refused(*out)
    dry_run = ("validator", "judge", *validator.options, "--group", "llama", "--seat", seats[0], "--dry-run")
    assert f"seat {seats[0]} judges group {group_number('llama')}" in stage.muster.ok(*dry_run).out
    state = stage.game.state
    assert all(state.seats[seat].groups == (1,) for seat in seats)
    stage.muster.ok("validator", "judge", "--stop", *validator.options, "--pool", 1, "--seat", seats[0])
    text = stage.muster.ok("validator", "status", "--address", validator.address).out
    assert "nothing: muster validator judge" in text
    assert "pool 1: pools 1" in text
    assert "understaffed: 10 of 11" in stage.muster.ok("pool", "status", "--pool", 1).out
    stage.muster.ok("validator", "judge", *validator.options, "--pool", 1)
    assert stage.game.state.seats[seats[0]].groups == (1,)


def test_a_pool_takes_work_once_its_seats_are_counted(stage: Stage) -> None:
    owner = stage.key("owner")
    stage.chain.mine(10)
    assert "muster pool set-service --count-seats" in stage.muster.ok("pool", "status", "--pool", 1).out
    stage.muster.ok("pool", "set-service", "--count-seats", "--pool", 1, *owner.options)
    text = stage.muster.ok("pool", "status", "--pool", 1).out
    assert "waiting for its owner to publish policy step 0" in text
    assert "11 of 11 needed seats judge pool 1, of 1 owner" in text
    stage.muster.ok("pool", "pause", *owner.options, "--pool", 1)
    assert "paused" in stage.muster.ok("pool", "list").out
    stage.muster.ok("pool", "pause", "--end", *owner.options, "--pool", 1)


def test_an_operator_registers_with_the_nodes_consent(stage: Stage) -> None:
    operator, node = stage.key("operator"), stage.key("node")
    stage.mint("deployer")
    poor = stage.muster.refused("keys", "send", *operator.options, "--to", node.address, "--amount", "1", "--yes")
    assert "has 0 tokens and needs 1" in poor
    stage.muster.ok(
        "keys", "send", *stage.key("deployer").options, "--to", operator.address, "--amount", "1000", "--yes"
    )
    assert (stage.tokens("deployer"), stage.tokens("operator")) == (0, 1000 * TOKEN)
    with_key = ("--node-keystore", node.path, "--node-password-file", node.password_file)
    order = ("node", "join", "--pool", 1, *operator.options, "--stake", "250")
    assert "is not registered on this chain" in stage.muster.ok("node", "status", "--node", node.address).out
    assert "no node is named" in stage.muster.refused(*order, "--yes")
    uninvited = stage.muster.refused(*order, *with_key, "--yes")
    assert "pool 1 takes invited nodes only; send its owner the node's address" in uninvited
    assert stage.tokens("operator") == 1000 * TOKEN, "no stake is locked before the pool's refusal"
    invited = ("--invite", stage.invite("node"))
    assert "consent is missing" in stage.muster.refused(*order, "--node", node.address, *invited, "--yes")
    stage.muster.ok(*order, *with_key, *invited, "--dry-run")
    assert "11 of 11 needed seats judge pool 1" in stage.muster.ok(*order, *with_key, *invited, "--yes").out
    member = ("node", "join", "--pool", 1, *operator.options, "--node", node.address)
    assert "is in pool 1 already" in stage.muster.refused(*member, "--yes")
    stage.muster.ok(*member, "--stake", "0.5", "--yes")
    view = stage.muster.ok("node", "status", "--node", node.address, "--json").json
    assert (view["operator"], view["stake"]) == (operator.address, 250_500_000_000)
    assert stage.tokens("operator") == 749_500_000_000
    assert (view["pool"], view["accounts"][0]["standing"]) == (1, "member")


def test_a_second_node_is_registered_by_a_paper(stage: Stage) -> None:
    operator, other, paper = stage.key("operator"), stage.key("other"), stage.folder / "consent.json"
    node_key = ("--node-keystore", other.path, "--node-password-file", other.password_file)
    stage.muster.ok("node", "join", *node_key, "--consent-to", operator.address, "--consent", paper)
    order = ("node", "join", "--pool", 1, "--stake", "210", "--consent", paper)
    invite = ("--invite", stage.invite("other"), "--yes")
    assert "is for operator" in stage.muster.refused(*order, *stage.key("validator").options, *invite)
    signed = paper.read_text()
    paper.write_text(signed.replace(other.address, stage.key("spare").address))
    spare = ("--invite", stage.invite("spare"), "--yes")
    assert "is signed by" in stage.muster.refused(*order, *operator.options, *spare)
    paper.write_text(signed)
    assert "is for node" in stage.muster.refused(*order, *operator.options, *spare)
    stage.muster.ok(*order, *operator.options, *invite)


def test_only_the_owner_invites(stage: Stage) -> None:
    paper, node = stage.folder / "forged.invite", stage.key("node")
    invite = ("pool", "invite", "--pool", 1, "--node", node.address, "--out", paper)
    assert "use the owner's key" in stage.muster.refused(*invite, *stage.key("operator").options)
    assert not paper.exists()


def validator_up(stage: Stage) -> ValidatorUp:
    """The `up` of the owner of all seats; nothing is started."""
    key, voter = (ProfileKey(keystore=stage.key(name).path) for name in ("validator", "voter0"))
    names = {"deployment": stage.muster.deployment, "rpc": stage.chain.url, "pool": 1}
    profile = Profile(role="validator", home=stage.folder, cache=stage.folder, key=key, voters=(voter,), **names)
    return ValidatorUp(profile)


@pytest.mark.usefixtures("home")
def test_work_is_followed_judged_and_paid(stage: Stage) -> None:
    operator, node, game = stage.key("operator"), stage.key("node"), stage.game
    step = game.publish()
    maker = stage.account("node")
    first, second = game.submit_lane(step, *((maker, work(str(units), units)) for units in (1000, 500)))
    shown = ("node", "status", "--node", node.address)
    assert "the committee's draw" in stage.muster.ok(*shown).out
    account = stage.muster.ok(*shown, "--json").json["accounts"][0]
    assert account["pending"] == 1500 * 1_000_000
    claim = ("node", "claim", "--pool", 1, "--node", node.address, *operator.options)
    assert "nothing of" in stage.muster.refused(*claim)
    up = validator_up(stage)
    assert up.votes_due() == ""
    game.draw(first.lane)
    lost = show_tokens(game.suite.params.values()["withheldPenalty"])
    assert up.votes_due() == f"3 votes not opened yet; each that is missing costs {lost} tokens"
    game.vote(first.lane, {first.place: Code.ACCEPT, second.place: Code.MALFORMED})
    assert up.votes_due() == ""
    assert "vests at" in stage.muster.refused(*claim)
    text = stage.muster.ok(*shown).out
    assert "malformed (3 of 3 opened votes: malformed, malformed, malformed)" in text
    assert "challenge window" in text
    stage.chain.later(130)
    before = stage.tokens("operator")
    stage.muster.ok(*claim, "--dry-run")
    paid = stage.muster.ok(*claim, "--json").json
    assert (paid["units"], paid["base_units"]) == (1000, 10**9)
    assert stage.tokens("operator") == before + 10**9
    account = stage.muster.ok(*shown, "--json").json["accounts"][0]
    assert (account["earned"], account["paid"], account["claimable"], account["pending"]) == (10**9, 10**9, 0, 0)


def test_validators_take_their_fees(stage: Stage) -> None:
    validator = stage.key("validator")
    before = stage.tokens("validator")
    view = stage.muster.ok("validator", "status", "--address", validator.address, "--json").json
    assert sum(seat["due"] for seat in view["seats"]) == 3
    plan = stage.muster.ok("validator", "claim", *validator.options, "--dry-run", "--json").json["plan"]
    earning = {one["seat"] for one in view["seats"] if one["due"] or int(one["fees"])}
    assert sum("withdrawFees" in sent["call"] for sent in plan) == len(earning)
    stage.muster.ok("validator", "claim", *validator.options)
    assert stage.tokens("validator") > before
    for nobodys in ((), ("--seat", 60_000)):
        assert "no fee is due" in stage.muster.refused("validator", "claim", *validator.options, *nobodys)


def test_a_seat_gets_another_voting_key(stage: Stage) -> None:
    validator = stage.key("validator")
    view = stage.muster.ok("validator", "status", "--address", validator.address, "--json").json
    first, other = view["seats"][0]["seat"], stage.key("spare").address
    change = ("validator", "judge", *validator.options, "--seat", first)
    stage.muster.ok(*change, "--new-voter", other)
    again = ("validator", "status", "--address", validator.address, "--json")
    assert stage.muster.ok(*again).json["seats"][0]["voter"] == other
    former = view["seats"][0]["voter"]
    stage.muster.ok(*change, "--new-voter", former)
    assert "none of your seats is left to change" in stage.muster.refused(*change)
    assert "is given to one seat" in stage.muster.refused(*change, "--seat", first + 1, "--new-voter", other)


def test_a_rejected_node_sees_why_and_disputes(stage: Stage) -> None:
    node, operator, game = stage.key("node"), stage.key("operator"), stage.game
    refused = game.submit(stage.account("node"), 0, work("700", 700))
    game.vote(refused.lane, {refused.place: Code.REJECT_WEIGHTS})
    shown = ("node", "status", "--node", node.address, "--json")
    account = stage.muster.ok(*shown, "--pool", "http://127.0.0.1:1").json["accounts"][0]
    last = account["submissions"][-1]
    assert (last["status"], last["reason"].split(" (")[0]) == ("rejected", "reject: weights")
    assert last["evidence"][0].startswith("no evidence: the service http://127.0.0.1:1")
    assert account["standing"].startswith("frozen")
    order = ("node", "dispute", "--pool", 1, "--file", last["sequence"], *operator.options)
    stage.muster.ok(*order, "--yes")
    assert "a jury's verdict" in stage.muster.ok(*shown).json["accounts"][0]["submissions"][-1]["waiting"]
    assert "was refused" in stage.muster.refused(*order, "--yes")


def test_a_second_pool_under_one_profile_is_meant_by_its_number_alone(stage: Stage) -> None:
    muster, owner = Muster(stage.folder / "owner-of-two", stage.muster.deployment, stage.chain.url), stage.key("owner")
    muster.home.mkdir()
    named = ("--url", "http://127.0.0.1:1", "--s3", "s3.json", "--deployment", stage.muster.deployment)
    name_pool(Path(muster.ok("init", "owner", *named, "--json").json["profile"]), 1)
    config, terms = write_pool_files(muster.home)
    create = ("pool", "create", "--config", config, "--terms", terms, "--budget", 50, *owner.options, "--yes")
    assert "pool 2; the profile stays pool 1's: commands about this one need --pool 2" in muster.ok(*create).out
    first, second = (), ("--pool", 2)
    before = [muster.ok("pool", "status", *which, "--json").json for which in (first, second)]
    assert [view["pool"] for view in before] == [1, 2]
    assert before[1]["service"] == {"key": "", "url": ""}, "the first pool's is not announced as the second's"
    for which, amount in ((first, 3), (second, 4)):
        muster.ok("pool", "fund", *which, "--amount", amount, *owner.options, "--yes")
    after = [muster.ok("pool", "status", *which, "--json").json for which in (first, second)]
    added = [new["money"]["funded"] - old["money"]["funded"] for old, new in zip(before, after, strict=True)]
    assert added == [3 * TOKEN, 4 * TOKEN]


def test_everybody_leaves_with_their_money(stage: Stage) -> None:
    operator, other = stage.key("operator"), stage.key("other")
    withdraw = ("node", "leave", "--node", other.address, *operator.options, "--yes")
    stage.muster.ok(*withdraw)
    assert "unlocks at" in stage.muster.refused(*withdraw)
    validator = stage.key("validator")
    state = stage.game.state
    # A seat of the disputed file's committee stays until the jury has spoken: another one leaves.
    seat = next(own.seat for voter in stage.voters for own in state.seats_of_voter(voter.address) if not own.frozen)
    bond = ("validator", "leave", "--seat", seat, *validator.options, "--yes")
    stage.muster.ok(*bond)
    assert "can unbond in epoch" in stage.muster.refused(*bond)
    stage.chain.mine(40)
    stage.muster.ok(*bond)
    assert "is locked until" in stage.muster.refused(*bond)
    stage.chain.later(3700)
    before = stage.tokens("validator"), stage.tokens("operator")
    stage.muster.ok(*bond)
    stage.muster.ok(*withdraw)
    assert "has no stake" in stage.muster.refused(*withdraw)
    assert stage.tokens("validator") == before[0] + 99 * TOKEN  # a hundredth of the bond pays for the seat's number
    assert stage.tokens("operator") == before[1] + 210 * TOKEN


def test_a_pool_is_closed_and_settled(stage: Stage) -> None:
    owner, node = stage.key("owner"), stage.key("node")
    stage.muster.ok("pool", "remove-node", "--pool", 1, "--node", node.address, *owner.options, "--yes")
    stage.muster.ok("pool", "close", "--pool", 1, *owner.options, "--yes")
    assert "can be settled at" in stage.muster.refused("pool", "close", "--pool", 1, *owner.options)
    stage.chain.later(3600 * 24 * 30)
    before = stage.tokens("owner")
    stage.muster.ok("pool", "close", "--pool", 1, *owner.options, "--yes")
    assert stage.tokens("owner") > before
    text = stage.muster.ok("pool", "status", "--pool", 1).out
    assert "settled" in text
    assert "removed by the pool's owner" in text
