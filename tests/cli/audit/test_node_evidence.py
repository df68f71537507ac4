"""A node's evidence from a service's documents: how near the bound it is, and what moves it."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from chain.indexer.records import Round
from cli.audit.recompute import history_document, history_files, history_text
from cli.pool.document import pool_without_evidence, refuse_no_evidence, service_objects
from protocol.config import PoolConfig
from protocol.errors import ConfigError, MusterError
from protocol.evidence.figures import FIGURES
from protocol.evidence.null_model import LIMIT_NATS, EvidenceConfig
from protocol.verdict import BallotDocument, Code
from storage.keys import object_key
from tests.cli.pool_files import CONFIG
from tests.storage.mirror import bucket
from tests.validator.test_challenges import PAIR, document, file
from validator.judging.sources import Sources
from validator.replay import OpenedVotes

NAMED: PoolConfig = CONFIG.model_copy(update={"evidence": EvidenceConfig(engines=(PAIR[0],))})


def terms(rate: int = 65536) -> Any:
    return SimpleNamespace(auditRate=rate)


def served(misses: int, files: int, code: Code = Code.ACCEPT) -> dict[str, Any]:
    """The challenge of a node whose files a committee of one judged, and whose service has the documents."""
    objects = {object_key("configs", NAMED.digest): NAMED.canonical()}
    rounds, made = {}, [file(number, code, code) for number in range(files)]
    for one in made:
        ballot = BallotDocument("lane", "00", (replace(document(misses), sequence=one.sequence),))
        objects[object_key("verdicts", ballot.digest)] = ballot.canonical()
        decided: Any = Round(0, seed_block=1)
        decided.settled, decided.codes, decided.seats = True, int(code) << 4 * one.place, [5]
        decided.reveals = {0: (int(code) << 4 * one.place, ballot.digest)}
        rounds[one.sequence] = SimpleNamespace(rounds=[decided])
    pool = SimpleNamespace(config_hash=NAMED.digest, terms=terms())
    state: Any = SimpleNamespace(
        pools={1: pool}, submissions_of=lambda pool, node: made, lane_of=lambda one: rounds[one.sequence]
    )

    with bucket(objects) as service, service_objects(service, 10.0) as stored:
        votes, node = OpenedVotes(Sources(stored)), "0x" + "11" * 20
        found = history_files(state, 1, node, NAMED)
        return history_document(node, found, lambda one: votes.verdicts(state, one))


def test_a_node_sees_how_far_each_figure_is_which_engines_move_it_and_which_run_accuses_it() -> None:
    challenge = served(misses=1, files=20)
    assert challenge["accused"]
    assert challenge["left"]["unexplained"] < 0 < challenge["left"]["gaps"]
    assert challenge["left"]["gaps"] == pytest.approx(LIMIT_NATS + math.log(len(FIGURES)) - challenge["nats"]["gaps"])
    (pair,) = challenge["engines"]
    assert (pair["worker"], pair["verifier"]) == ("vllm 0.32.0 bfloat16 cpu", "transformers 5.1 bfloat16 cpu")
    assert pair["documents"] == 20
    assert pair["rates"]["unexplained"] == {"rate": pytest.approx(0.1), "honest": 0.01}
    text = history_text(challenge)
    assert "20 documents by transformers 5.1 bfloat16 cpu on files of vllm 0.32.0 bfloat16 cpu" in text
    assert "to the bound" in text
    run = challenge["run"]
    assert 1 < run["files"] < 20, "no more than it takes"
    assert run["nats"] > LIMIT_NATS
    assert f"muster challenge open --first {run['first']} --last {run['last']}: {run['files']} files" in text
    assert "no challenge shows it safely" in history_text(challenge | {"run": None})
    honest = served(misses=0, files=20)
    assert (honest["accused"], honest["run"]) == (False, None)


def test_files_that_were_refused_accuse_nobody_a_second_time() -> None:
    challenge = served(misses=1, files=20, code=Code.REJECT_SAMPLING)
    assert (challenge["accused"], challenge["engines"]) == (False, [])
    text = history_text(challenge)
    assert "20 decided, figures of 0 of them" in text
    assert "not counted: figures of files that were not accepted" in text


def test_a_pool_without_evidence_has_no_challenge() -> None:
    state: Any = SimpleNamespace(submissions_of=lambda pool, node: [])
    with pytest.raises(ConfigError, match="has no `evidence`"):
        history_files(state, 1, "0x", CONFIG)
    with pytest.raises(MusterError, match="has submitted nothing"):
        history_files(state, 1, "0x", NAMED)


def seen_at(config: PoolConfig, held: PoolConfig, capsys: pytest.CaptureFixture[str]) -> tuple[str, str, str]:
    """(what `pool status` warns of, why `challenge open` is refused, what it says on stderr) of a pool whose service
    holds a configuration that is its own, or not."""
    refused = ""
    with bucket({object_key("configs", config.digest): held.canonical()}) as url:
        pool: Any = SimpleNamespace(pool=1, service_url=url, config_hash=config.digest, terms=terms())
        try:
            refuse_no_evidence(pool)
        except ConfigError as error:
            refused = str(error)
        said = pool_without_evidence(url, {"config": config.digest.hex()})
    return said, refused, capsys.readouterr().err


def test_nobody_opens_a_challenge_where_none_can_convict(capsys: pytest.CaptureFixture[str]) -> None:
    said, refused, _ = seen_at(CONFIG, CONFIG, capsys)
    assert said == "the pool's configuration has no `evidence`"
    assert refused.startswith(f"{said}: its juries refute every challenge, and the bond would be lost")
    assert seen_at(NAMED, NAMED, capsys) == ("", "", "")
    # What cannot be had, or is another pool's, says nothing.
    said, refused, told = seen_at(NAMED, CONFIG, capsys)
    assert (said, refused) == ("", "")
    assert "pool 1: whether it has `evidence` was not checked" in told
    assert pool_without_evidence("http://127.0.0.1:1", {}) == "", "the chain never answered"
