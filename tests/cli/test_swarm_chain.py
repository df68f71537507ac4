"""`muster swarm open, join --swarm, leave, withdraw, accuse` on a real chain."""

import json
from pathlib import Path

import pytest

from protocol.accounts import Account
from protocol.documents import load_document
from protocol.swarm.document import SwarmDocument
from protocol.swarm.envelope import Envelope, SharedCompletion, SharedGroup, seal
from runtime.keystore import store
from swarm.config import SwarmMemberConfig
from swarm.standings import MemberStanding, on_chain
from tests.cli.muster import Muster
from tests.cli.test_swarm import DOCUMENT, shared_by
from tests.conftest import GRAINS, Deployed

SECRET, STAKE = bytes([9]) * 32, 40 * GRAINS


@pytest.fixture
def place(tmp_path: Path, deployed: Deployed) -> Path:
    """A member's key with tokens and gas, a deployment file, and swarm 1 of the document."""
    (tmp_path / "swarm.json").write_text(json.dumps(DOCUMENT))
    (tmp_path / "password").write_text("correct horse battery staple")
    (tmp_path / "password").chmod(0o600)
    store(tmp_path / "key.json", SECRET, "correct horse battery staple", work_factor=1 << 10)
    deployed.deployment.save(tmp_path / "deployment.json")
    member = Account.from_key(SECRET)
    deployed.chain.fund(member.address)
    deployed.suite(deployed.governance).token.mint(member.address, 2 * STAKE).send()
    return tmp_path


@pytest.fixture
def muster(muster: Muster, place: Path, deployed: Deployed) -> Muster:
    """With this chain in its environment."""
    muster.deployment, muster.rpc = place / "deployment.json", deployed.chain.url
    return muster


def acting(place: Path) -> list[str]:
    return ["--keystore", str(place / "key.json"), "--password-file", str(place / "password"), "--yes"]


def opening(place: Path) -> list[str]:
    terms = ["--document", str(place / "swarm.json"), "--stake", "40", "--delay", "3600"]
    return ["swarm", "open", *terms, *acting(place)]


def joining(place: Path, home: str = "me") -> list[str]:
    own = ["--home", str(place / home), "--document", str(place / "swarm.json"), "--model", "model"]
    return ["swarm", "join", *own, "--exchange", str(place / "all"), "--swarm", "1", *acting(place)]


def test_a_membership_from_beginning_to_end(muster: Muster, place: Path, deployed: Deployed) -> None:
    assert "would succeed" in muster.ok(*opening(place), "--dry-run").out
    assert muster.ok(*opening(place), "--json").json["swarm"] == 1
    member = Account.from_key(SECRET).address
    answer = muster.ok(*joining(place), "--json").json
    assert answer["stake"] == "locked in swarm 1"
    config = load_document(place / "me" / "member.json", SwarmMemberConfig)
    assert config.chain is not None
    assert (config.chain.swarm, config.chain.rpc) == (1, (deployed.chain.url,))
    swarms = deployed.suite().swarms
    assert swarms.member_of(1, member).stake == STAKE
    # joining once more, with another home, locks nothing twice
    muster.ok(*joining(place, "again"))
    assert deployed.suite().token.balance_of(member) == STAKE
    # but not once another home has worked with the key: this one would sign the same rounds
    deployed.suite(Account.from_key(SECRET)).swarms.record(1, 0, 9, 8, b"\x07" * 32).send()
    assert "it works in another home" in muster.refused(*joining(place, "second"))
    assert not (place / "second" / "member.json").exists()
    key = ["--password-file", str(place / "password")]
    early = muster.refused("swarm", "withdraw", "--home", place / "me", *key)
    assert "is still a member of swarm 1" in early
    assert f"muster swarm leave --home {place / 'me'}; 3600 s later" in early
    assert "locked until" not in muster.ok("swarm", "leave", "--home", place / "me", *key).out
    assert "is locked until" in muster.refused("swarm", "withdraw", "--home", place / "me", *key)
    deployed.chain.later(3601)
    assert "withdraw 40 tokens" in muster.ok("swarm", "withdraw", "--home", place / "me", *key).out
    assert deployed.suite().token.balance_of(member) == 2 * STAKE
    assert "was withdrawn already" in muster.refused("swarm", "withdraw", "--home", place / "me", *key)
    assert "a key joins once" in muster.refused(*joining(place, "third"))
    assert not (place / "third" / "member.json").exists()


def test_somebody_else_pays(muster: Muster, place: Path, deployed: Deployed) -> None:
    muster.ok(*opening(place))
    hot = Account.from_key(bytes([10]) * 32)
    store(place / "hot.json", bytes([10]) * 32, "correct horse battery staple", work_factor=1 << 10)
    words = joining(place)
    words[words.index("--keystore") + 1] = str(place / "hot.json")
    muster.ok(*words, "--owner-keystore", place / "key.json", "--owner-password-file", place / "password")
    view = deployed.suite().swarms.member_of(1, hot.address)
    assert (view.owner, view.stake) == (Account.from_key(SECRET).address, STAKE)
    refused = muster.refused("swarm", "leave", "--home", place / "me", "--password-file", place / "password")
    assert "has 0.000000 ETH" in refused or "did not pay the stake" in refused
    owner = ["--keystore", place / "key.json", "--password-file", place / "password"]
    muster.ok("swarm", "leave", "--home", place / "me", *owner)
    assert not deployed.suite().swarms.member_of(1, hot.address).active


def test_join_says_what_is_wrong(muster: Muster, place: Path, deployed: Deployed) -> None:
    assert "swarm 1 is not there" in muster.refused(*joining(place))
    muster.ok(*opening(place))
    assert "leave --member out" in muster.refused(*joining(place), "--member", "0x" + "11" * 20)
    (place / "swarm.json").write_text(json.dumps({**DOCUMENT, "name": "another"}))
    assert "has the document" in muster.refused(*joining(place))
    assert not (place / "me" / "member.json").exists()
    member = Account.from_key(SECRET)
    assert not deployed.suite().swarms.member_of(1, member.address).joined_block


def test_two_files_convict(muster: Muster, place: Path, deployed: Deployed) -> None:
    muster.ok(*opening(place))
    muster.ok(*joining(place))
    member, swarms = Account.from_key(SECRET), deployed.suite().swarms
    document = load_document(place / "swarm.json", SwarmDocument)
    for name in ("one", "other"):
        made = [SharedCompletion(text=name, ended=True, reward=0.0)] * document.samples
        envelope = Envelope(
            chain_id=swarms.deployment.chain_id,
            swarms=swarms.address,
            swarm=1,
            document=document.digest.hex(),
            member=member.address,
            round=3,
            groups=[SharedGroup(slot=0, question="0" * 64, completions=made)],
        )
        (place / f"{name}.json").write_bytes(seal(envelope, member))
    where = ["--document", place / "swarm.json", "--swarm", "1", *acting(place)]
    assert "the same groups" in muster.refused("swarm", "accuse", place / "one.json", place / "one.json", *where)
    assert muster.ok("swarm", "accuse", place / "one.json", place / "other.json", *where, "--json").json["round"] == 3
    assert swarms.member_of(1, member.address).ejected


def test_the_ledger_tells_where_keys_stand_by_the_chain(place: Path, deployed: Deployed) -> None:
    swarms = deployed.suite(deployed.governance).swarms
    swarm = swarms.open(load_document(place / "swarm.json", SwarmDocument).digest, STAKE, 3600).send()
    member = Account.from_key(SECRET)
    stranger = Account.from_key(bytes([8]) * 32).address
    deployed.suite(member).swarms.join(swarm, STAKE, member.address).send()
    asked = [member.address, stranger]
    look = on_chain(swarms, swarm, 3)
    block = swarms.member_of(swarm, member.address).joined_block
    assert look(asked) == {member.address: MemberStanding("member", None, STAKE, 0)}
    # the one after its joining fixes its problems, and has as many on it as receivers want before they read it
    deployed.chain.mine(3)
    assert look(asked)[member.address].start is None
    deployed.chain.mine(1)
    assert swarms.client.head().number == block + 4
    fixing = swarms.client.block(block + 1)
    assert fixing is not None
    assert look(asked)[member.address] == MemberStanding("member", fixing.hash, STAKE, 0)
    deployed.suite(member).swarms.leave(swarm, member.address).send()
    assert look(asked)[member.address].word == "left"


def test_the_ledger_waits_for_confirmations_as_a_receiver_does(muster: Muster, place: Path, deployed: Deployed) -> None:
    muster.ok(*opening(place))
    muster.ok(*joining(place))
    swarms, member = deployed.suite().swarms, Account.from_key(SECRET).address
    deployed.chain.mine(12)
    fixing = swarms.client.block(swarms.member_of(1, member).joined_block + 1)
    assert fixing is not None
    shared_by(place, 0, swarms.swarm_id(1), fixing.hash)
    early = muster.ok("swarm", "ledger", "--home", place / "me", "--json").json
    assert (early["members"], early["refused"]) == ({}, 1)
    deployed.chain.mine(1)
    found = muster.ok("swarm", "ledger", "--home", place / "me", "--json").json["members"]
    assert {address: one["groups"] for address, one in found.items()} == {member: 1}
