"""The pipeline on real files of a tiny model, and on bytes that nobody honest writes."""

import dataclasses
import os
import random

import pytest

from protocol.engines.hf import TransformersEngine
from protocol.rollouts.file import write
from protocol.verdict import Code, Verdict
from tests.validator import tiny
from validator.checks import CHECKS
from validator.pipeline import judge


def test_an_honest_file_is_accepted_with_every_figure() -> None:
    judgement = tiny.verdict_on(tiny.honest(), tiny.order())
    assert judgement.verdict.code is Code.ACCEPT
    assert [finding.check for finding in judgement.verdict.findings] == [check.name for check in CHECKS]
    assert judgement.verdict.audited == list(range(6))
    assert Verdict.parse(judgement.verdict.canonical()) == judgement.verdict
    assert judgement.origins


def test_two_verifiers_with_other_batches_agree() -> None:
    made, of = tiny.honest(), tiny.order()
    one = judge(tiny.facts(of, made), made.data, tiny.CONFIG, tiny.workbook(), tiny.engine(0))
    assert one.verdict.code is tiny.verdict_on(made, of).verdict.code


def test_the_audit_sample_limits_the_prefill() -> None:
    judgement = tiny.verdict_on(tiny.honest(), tiny.order(), audit_rate=20000)
    assert judgement.verdict.code is Code.ACCEPT
    assert 1 <= len(judgement.verdict.audited) < 6


def test_other_weights_are_rejected() -> None:
    other = TransformersEngine()
    other.load(tiny.model_folder(seed=1))
    made, of = tiny.honest(), tiny.order()
    verdict = judge(tiny.facts(of, made), made.data, tiny.CONFIG, tiny.workbook(), other).verdict
    assert verdict.code is Code.REJECT_WEIGHTS


def test_a_missing_or_foreign_file_is_unavailable() -> None:
    made, facts = tiny.honest(), tiny.facts(tiny.order(), tiny.honest())
    for data in (None, made.data + b"x", b""):
        verdict = judge(facts, data, tiny.CONFIG, tiny.workbook(), tiny.engine(1)).verdict
        assert verdict.code is Code.UNAVAILABLE


def test_a_copy_in_the_same_lane_is_blamed_on_the_later() -> None:
    """Proofs of an accepted file under another node's tokens: only possible for rollouts that were not audited."""
    first = tiny.verdict_on(tiny.honest(), tiny.order())
    of, made = tiny.order(1), tiny.honest(1)
    rows = [
        dataclasses.replace(mine, proofs=theirs.proofs) if len(mine.proofs) == len(theirs.proofs) else mine
        for mine, theirs in zip(made.rollouts, tiny.honest().rollouts, strict=True)
    ]
    copy = tiny.producer().seal(of, rows)
    facts = tiny.facts(of, copy, sequence=6)
    verdict = judge(facts, copy.data, tiny.CONFIG, tiny.workbook(), tiny.engine(1), first.origins).verdict
    assert verdict.code is Code.REJECT_DUPLICATE
    assert verdict.findings[-1].figures["origin"] == 5


def test_cheap_refusals_cost_no_prefill() -> None:
    made, of = tiny.honest(), tiny.order()
    facts = dataclasses.replace(tiny.facts(of, made), units=10**6)
    verdict = judge(facts, made.data, tiny.CONFIG, tiny.workbook(), tiny.engine(1)).verdict
    assert verdict.code is Code.REJECT_REWARD
    assert verdict.audited == []


def test_a_reorganised_seed_is_malformed_not_fraud() -> None:
    made, of = tiny.honest(), tiny.order()
    facts = dataclasses.replace(tiny.facts(of, made), step_seed=b"\x55" * 32)
    assert judge(facts, made.data, tiny.CONFIG, tiny.workbook(), tiny.engine(1)).verdict.code is Code.MALFORMED


@pytest.mark.parametrize("seed", range(6))
def test_damaged_files_are_never_accepted_and_never_raise(seed: int) -> None:
    """Bytes flipped, cut, doubled; the chain commits to the damaged bytes, so only the reader stands between."""
    rng, made, of = random.Random(seed), tiny.honest(), tiny.order()
    for _ in range(15):
        data = bytearray(made.data)
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        if rng.random() < 0.3:
            data = data[: rng.randrange(len(data))]
        if bytes(data) == made.data:
            continue
        fake = dataclasses.replace(made, data=bytes(data))
        facts = dataclasses.replace(tiny.facts(of, fake), sha256=_sha(bytes(data)))
        verdict = judge(facts, bytes(data), tiny.CONFIG, tiny.workbook(), tiny.engine(1)).verdict
        # A flipped byte of padding or of the writer's name can leave every row as it was: that is the same work.
        assert not verdict.code.is_accept or facts.root == made.commitment.root


@pytest.mark.parametrize("data", [b"PAR1PAR1", b"\x00" * 4096, os.urandom(2048), b"PAR1" + b"\xff" * 64 + b"PAR1"])
def test_garbage_is_malformed(data: bytes) -> None:
    facts = dataclasses.replace(tiny.facts(tiny.order(), tiny.honest()), sha256=_sha(data))
    assert judge(facts, data, tiny.CONFIG, tiny.workbook(), tiny.engine(1)).verdict.code is Code.MALFORMED


def test_tokens_outside_the_vocabulary_never_reach_the_model() -> None:
    made, of = tiny.honest(), tiny.order()
    rows = [dataclasses.replace(row, output_tokens=(2**31 - 1, *row.output_tokens[1:])) for row in made.rollouts]
    data = write(made.header, rows)
    sealed = tiny.producer().seal(of, rows)
    assert sealed.data == data
    assert tiny.verdict_on(sealed, of).verdict.code is Code.MALFORMED


def _sha(data: bytes) -> bytes:
    import hashlib

    return hashlib.sha256(data).digest()
