"""`muster challenge open, show, conclude` on a real chain."""

from dataclasses import replace
from pathlib import Path

import pytest

from chain.indexer.records import ChallengeOutcome
from cli.audit.challenge import named_run
from protocol.accounts import Account
from protocol.errors import ConfigError
from protocol.verdict import Code
from runtime.keystore import store
from tests.chain.game import begin, work
from tests.cli.muster import Muster
from tests.conftest import TOKEN, Deployed
from tests.validator.test_challenges import OPENED, final

SECRET, PASSWORD = bytes([11]) * 32, "correct horse battery staple"


def test_a_challenge_begins_where_it_was_asked_to_or_not_at_all() -> None:
    files = [replace(final(number), sequence=3 * number) for number in range(260)]
    assert named_run(files, OPENED, None, None) == files[244:], "more would cost more, and nobody asked"
    assert named_run(files[:256], OPENED, 0, None) == files[:256]
    with pytest.raises(ConfigError, match=r"260 files from 0 on .* names 256 at most; .* --last 765"):
        named_run(files, OPENED, 0, None)
    # a run that was asked for is not cut short in silence: its end shows a node, what is left of it may not
    known = [final(number) for number in range(7)]
    known[4] = replace(known[4], code=int(Code.MALFORMED))
    known[5] = replace(known[5], final_time=OPENED + 1)
    known[6] = replace(known[6], code=int(Code.NONE))
    assert named_run(known, OPENED, 0, 4) == known[:4]
    for last in (5, 6, 99):
        with pytest.raises(ConfigError, match=r"end at 3, because not all files up to 5 .* --last 3"):
            named_run(known, OPENED, 0, last)
    with pytest.raises(ConfigError, match="up to 6"):
        named_run(known, OPENED + 1, 0, 6)
    known = [final(number) for number in range(4)]
    known[2] = replace(known[2], final_time=OPENED + 1)
    assert named_run(known, OPENED, 0, None) == named_run(known, OPENED, None, 1) == known[:2]
    with pytest.raises(ConfigError, match="up to 2 are final"):
        named_run(known, OPENED, 0, 3)
    assert named_run(known, OPENED + 1, 0, 3) == known


def test_a_challenge_from_its_price_to_its_end(muster: Muster, deployed: Deployed, tmp_path: Path) -> None:
    game = begin(deployed, tmp_path)
    _, node = game.node()
    step = game.publish()
    files = game.submit_lane(step, *((node, work(str(number))) for number in range(3)))
    game.vote(files[0].lane, dict.fromkeys((file.place for file in files), Code.ACCEPT))
    deployed.deployment.save(tmp_path / "deployment.json")
    muster.deployment, muster.rpc = tmp_path / "deployment.json", deployed.chain.url
    (tmp_path / "password").write_text(PASSWORD)
    (tmp_path / "password").chmod(0o600)
    store(tmp_path / "key.json", SECRET, PASSWORD, work_factor=1 << 10)
    accuser = Account.from_key(SECRET).address
    deployed.chain.fund(accuser)
    deployed.suite(deployed.governance).token.mint(accuser, 10 * TOKEN).send()
    acting = ["--keystore", tmp_path / "key.json", "--password-file", tmp_path / "password", "--yes"]
    opening = ["challenge", "open", "--node", node.address, *acting]

    assert "has no accepted and final files there" in muster.refused(*opening)
    deployed.chain.later(61)
    bond = game.suite.juries.deposit_of(game.pool, 2)
    priced = muster.ok(*opening, "--first", files[1].sequence, "--dry-run", "--json").json
    assert (priced["files"], priced["bond"]) == ([files[1].sequence, files[2].sequence], bond)
    assert not game.state.challenges
    bond = game.suite.juries.deposit_of(game.pool, 3)
    assert muster.ok(*opening, "--json").json["challenge"] == 1
    challenge = game.state.challenges[1]
    assert challenge.sequences == tuple(file.sequence for file in files)

    game.try_case(challenge.trial, Code.REJECT_WEIGHTS)
    game.suite.node_challenges.conclude(1).send()
    until = game.state.trials[challenge.trial].appeal_until
    assert muster.ok("challenge", "show", 1, "--json").json["verdict_final_at"] == until
    appealing = ["challenge", "appeal", 1, *acting[:-1], "--dry-run", "--json"]
    assert muster.ok(*appealing).json["deposit"] == 2 * bond
    deployed.chain.later(until + 1 - game.suite.client.now())
    assert "the time for an appeal ended" in muster.refused("challenge", "appeal", 1, *acting)
    game.suite.node_challenges.conclude(1).send()
    assert game.state.challenges[1].outcome is ChallengeOutcome.UPHELD
    shown = muster.ok("challenge", "show", 1, "--json").json
    assert (shown["outcome"], shown["slashed"], shown["back"]) == ("upheld", 100 * TOKEN, bond)
    assert set(shown["votes"].values()) == {Code.REJECT_WEIGHTS.label}
    assert "upheld" in muster.ok("challenge", "show").out
    status = muster.ok("node", "status", "--node", node.address)
    assert "): ejected (reject: weights, node challenge 1)" in status.out
    assert "the node is out for good; a new one needs a new key" in status.out
    assert "there is no challenge 7" in muster.refused("challenge", "show", 7)
