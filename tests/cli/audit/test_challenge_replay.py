"""`muster verify challenge` on a real chain, after validators judged a challenge: by the documents that they published,
from a bucket that is honest, swaps a document, or has lost them."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chain.indexer.records import ChallengeOutcome
from cli.audit import recompute
from cli.audit.recompute import challenge_text
from protocol.encoding import keccak
from protocol.errors import MusterError
from protocol.verdict import Code
from storage.keys import object_key
from tests.cli.muster import Muster
from tests.cli.pool_files import create_pool
from tests.conftest import TOKEN, Deployed
from tests.storage.mirror import bucket
from tests.validator.daemon_world import ValidatorWorld, turns, validator_world
from tests.validator.test_challenges import on, tried
from tests.validator.test_node_challenge_jury import (
    CONFIG,
    RATE,
    WINDOWS,
    Figures,
    accepted,
    accuse,
    concluded,
    submitted,
)


def judged(world: ValidatorWorld) -> dict[str, bytes]:
    """A challenge against a cheat, upheld and published; what the pool's bucket holds then."""
    _, cheat, places = submitted(world, 4)
    world.judge.cheats.add(cheat.address)  # type: ignore[attr-defined]
    validator = world.start()
    _, _, number = accuse(world, accepted(world, places))
    assert concluded(world, number) is ChallengeOutcome.UPHELD
    trial = world.game.state.trials[world.game.state.challenges[number].trial]
    digests = {digest for _, digest in trial.reveals.values()}
    turns(validator, lambda: digests <= {keccak(data) for data in world.service.documents})
    objects = {object_key("verdicts", keccak(data)): data for data in world.service.documents}
    return objects | {object_key("configs", CONFIG.digest): CONFIG.canonical()}


def test_anyone_recomputes_a_challenge(muster: Muster, deployed: Deployed, tmp_path: Path) -> None:
    deployed.deployment.save(tmp_path / "deployment.json")
    muster.deployment, muster.rpc = tmp_path / "deployment.json", deployed.chain.url
    for words in ([], ["x"], ["1", "2"], ["0"]):
        refused = muster.refused("verify", "challenge", *words, "--pool", "1@http://127.0.0.1:1")
        assert "muster verify challenge --help" in refused
    assert "there is no pool yet" in muster.refused("verify", "challenge", 1, "--pool", "1@http://127.0.0.1:1")
    terms: dict[str, Any] = {"auditRate": RATE, "configHash": CONFIG.digest, **WINDOWS}
    with validator_world(deployed, tmp_path, **terms) as world:
        world.config, world.judge = CONFIG, Figures()  # type: ignore[assignment]
        objects, pool = judged(world), world.game.pool
        trial = world.game.state.trials[world.game.state.challenges[1].trial]
    asked = ["verify", "challenge", 1, "--published"]

    with bucket(objects) as url:
        found = muster.ok(*asked, "--pool", f"{pool}@{url}", "--json").json
        assert (found["follows"], found["outcome"], found["majority"]) == (True, "upheld", "reject: sampling")
        assert found["slashed"] == 100 * TOKEN
        assert found["jury"]["seed_block"] > found["jury"]["block"]
        assert [one["seat"] for one in found["votes"]] == list(trial.seats)
        for vote in found["votes"]:
            assert vote["document"]["why"].endswith("are refused: reject: sampling")
        assert "the outcome follows from the votes; nothing is wrong" in challenge_text(found)
        seven = muster.refused("verify", "challenge", 7, "--pool", f"{pool}@{url}", "--published")
        assert "there is no challenge 7; muster challenge show lists all" in seven
        second = create_pool(deployed.suite(deployed.chain.account()), tmp_path, CONFIG.digest)
        other = muster.refused("verify", "challenge", 1, "--pool", f"{second}@{url}")
        assert f"challenge 1 belongs to pool {pool}; pass --pool {pool}" in other

    digest = trial.reveals[0][1]
    swapped = objects | {object_key("verdicts", digest): b'{"verdicts":[]}'}
    with bucket(swapped) as url:
        done = muster.run(*asked, "--pool", f"{pool}@{url}")
        assert (done.code, done.err.count("Traceback")) == (1, 0)
        assert "its verdict document is not the one it voted with" in done.out

    lost = {key: data for key, data in objects.items() if not key.startswith("verdicts")}
    with bucket(lost) as url:
        assert "nobody has the verdict documents of jury" in muster.refused(*asked, "--pool", f"{pool}@{url}")


def test_bytes_that_are_gone_are_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    record: Any = tried()
    verdicts = {file.sequence: on(file, 1, record.trial.seed) for file in record.files}
    monkeypatch.setattr(recompute, "_measured", lambda *_: verdicts)
    config: Any = SimpleNamespace(orchestrator="https://pool.example")
    ours = recompute._ours(Any, config, record)  # type: ignore[arg-type]
    assert ours is not None
    assert ours.code is Code.REJECT_SAMPLING
    verdicts[4] = replace(verdicts[4], code=Code.UNAVAILABLE)
    with pytest.raises(MusterError, match="the bytes of files 4 cannot be had from https"):
        recompute._ours(Any, config, record)  # type: ignore[arg-type]
    without = recompute._ours(Any, config, tried(evidence=None))  # type: ignore[arg-type]
    assert without is not None
    assert without.code is Code.ACCEPT
