"""From bytes to verdict: hostile files, weights that are fetched ahead, retained bytes."""

import dataclasses
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from safetensors.torch import load_file, save_file

from attacks.validator import always
from engines.hf import TransformersEngine
from environments.base import NO_PROBLEM
from environments.pool import PoolEnvironments
from protocol.api.endpoints import OBJECTS
from protocol.errors import UnreachableError
from protocol.evidence.figures import figures_of
from protocol.identity import WorkId
from protocol.rollout_file.file import write
from protocol.seeds import Work
from protocol.verdict import Code, Verdict
from protocol.waits import wait_for
from runtime.pool_client import PoolClient
from tests.chain.published_pool import Published, pool_service
from tests.conftest import Deployed
from tests.storage.weights.folders import contents
from tests.validator import tiny, world
from tests.validator.scripted import ModelFreeJudge
from tests.validator.test_held_engines import engine
from tests.validator.world import BY_NAME
from validator.judging.checks import SHORTEST, SubmissionFacts, repeats, verdict_on
from validator.judging.pipeline import FileJudge, JudgedWeights, JudgeOne, LoadedEngine, judge
from validator.judging.sources import Sources
from validator.retention import RetentionStore
from worker.produce import Produced, Producer


def figure(verdict: Verdict, check: str, name: str) -> float:
    (finding,) = [one for one in verdict.findings if one.check == check]
    value = finding.measurements[name]
    assert isinstance(value, int | float)
    return value


def test_an_honest_file_is_accepted_with_every_figure() -> None:
    verdict = tiny.verdict_on(tiny.honest(), tiny.work_of())
    assert verdict.code is Code.ACCEPT
    assert [finding.check for finding in verdict.findings] == [*BY_NAME, "evidence"]
    figures = figures_of(Verdict.parse(verdict.canonical()))
    assert figures["gaps"].count == figures["unexplained"].count == figure(verdict, "sampling", "tokens")
    errors = figure(verdict, "logprobs", "mean") * figure(verdict, "logprobs", "tokens")
    assert figures["logprobs"].total == pytest.approx(errors, rel=1e-4)
    mantissas = figure(verdict, "toploc", "mantissa_mean") * figure(verdict, "toploc", "chunks")
    assert figures["mantissas"].total == pytest.approx(mantissas, rel=1e-4)
    assert {one.nats for one in figures.values()} == {None}, "nobody gave the judge a null model"
    assert verdict.audited == list(range(6))
    assert Verdict.parse(verdict.canonical()) == verdict


@pytest.mark.parametrize("longest", [117, 20])
def test_who_answers_a_prompt_that_is_too_long_is_not_to_blame(longest: int) -> None:
    """The owner asked it: what is asked in its place, cut off if need be, makes a file like any other."""
    work, of = tiny.CONFIG.work.model_copy(update={"max_prompt_tokens": longest}), tiny.work_of()
    config = tiny.CONFIG.model_copy(update={"work": work})
    producer = Producer(config, tiny.engine(0))
    producer.load(tiny.model_folder())
    made = producer.make(of)
    assert {len(row.prompt_tokens) for row in made.rollouts} == {min(longest, len(NO_PROBLEM) + 1)}
    assert {row.task_reward for row in made.rollouts} == {0.0}
    verdict = judge(tiny.facts(of, made), made.data, config, producer.environment, tiny.engine(1))
    assert verdict.code is Code.ACCEPT


def judged(facts: SubmissionFacts, data: bytes | None, engine: TransformersEngine | None = None) -> Verdict:
    return judge(facts, data, tiny.CONFIG, tiny.environment(), engine or tiny.engine(1))


def test_a_verifier_with_other_batches_agrees_and_other_weights_are_rejected() -> None:
    made, facts, other = tiny.honest(), tiny.facts(tiny.work_of(), tiny.honest()), TransformersEngine()
    assert judged(facts, made.data, tiny.engine(0)).code is judged(facts, made.data).code
    other.load(tiny.model_folder(seed=1))
    assert judged(facts, made.data, other).code is Code.REJECT_WEIGHTS


def test_the_audit_sample_limits_the_prefill() -> None:
    verdict = tiny.verdict_on(tiny.honest(), tiny.work_of(), audit_rate=20000)
    assert verdict.code is Code.ACCEPT
    assert 1 <= len(verdict.audited) < 6


def test_a_missing_or_foreign_file_is_unavailable() -> None:
    for data in (None, tiny.honest().data + b"x", b""):
        assert judged(tiny.facts(tiny.work_of(), tiny.honest()), data).code is Code.UNAVAILABLE


def looping(folder: Path) -> Path:
    """A copy of the tiny model that is so sure of its last token that it repeats it."""
    shutil.copytree(tiny.model_folder(), folder)
    weights = load_file(folder / "model.safetensors")
    weights["model.embed_tokens.weight"] *= 15
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_an_honest_loop_is_no_copy(tmp_path: Path) -> None:
    """Its chunks have equal activations and so equal proofs, under ever longer texts: prefilled, not blamed."""
    folder = looping(tmp_path / "model")
    work = tiny.CONFIG.work.model_copy(update={"max_new_tokens": 320})
    config = tiny.CONFIG.model_copy(update={"work": work})
    producer, verifier = Producer(config, TransformersEngine()), TransformersEngine(max_batch=2)
    producer.load(folder)
    verifier.load(folder)
    made, of = producer.make(tiny.work_of()), tiny.work_of()
    assert repeats(made.rollouts, [()] * len(made.rollouts)).ambiguous, "no proof is repeated: a weak test"
    facts = tiny.facts(of, made, audit_rate=1)
    verdict = judge(facts, made.data, config, PoolEnvironments.of(config, folder), verifier)
    assert verdict.code is Code.ACCEPT
    assert set(repeats(made.rollouts, [()] * len(made.rollouts)).ambiguous) <= set(verdict.audited)


def test_ambiguous_proofs_are_prefilled_whatever_the_audit_sample() -> None:
    """Proofs of one row under another's tokens: seldom drawn at this rate, and always found."""
    made, of = tiny.honest(2), tiny.work_of(2)
    source, target = [n for n, row in enumerate(made.rollouts) if len(row.output_tokens) >= SHORTEST][:2]
    rows = list(made.rollouts)
    rows[target] = dataclasses.replace(rows[target], proofs=(rows[source].proofs[0], *rows[target].proofs[1:]))
    forged = tiny.producer().seal(of, rows)
    verdict = tiny.verdict_on(forged, of, audit_rate=1)
    assert {source, target} <= set(verdict.audited)
    assert verdict.code is Code.REJECT_WEIGHTS


def test_cheap_refusals_cost_no_prefill() -> None:
    made, of = tiny.honest(), tiny.work_of()
    verdict = judged(tiny.facts(of, committed(made, units=10**6)), made.data)
    assert verdict.code is Code.REJECT_REWARD
    assert verdict.audited == []


def test_a_reorganised_seed_is_malformed_not_fraud() -> None:
    made, of = tiny.honest(), tiny.work_of()
    facts = tiny.facts(dataclasses.replace(of, step_seed=b"\x55" * 32), made)
    assert judged(facts, made.data).code is Code.MALFORMED


@pytest.mark.parametrize("seed", range(6))
def test_damaged_files_are_never_accepted_and_never_raise(seed: int) -> None:
    """Bytes flipped, cut, doubled; the chain commits to the damaged bytes, so only the reader stands between."""
    rng, made, of = random.Random(seed), tiny.honest(), tiny.work_of()
    for _ in range(15):
        data = bytearray(made.data)
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        if rng.random() < 0.3:
            data = data[: rng.randrange(len(data))]
        if bytes(data) == made.data:
            continue
        facts = tiny.facts(of, committed(made, sha256=sha256(data).digest()))
        verdict = judged(facts, bytes(data))
        # A flipped byte of padding or of the writer's name can leave every row as it was: that is the same work.
        assert not verdict.code.is_accept or facts.commitment.root == made.commitment.root


@pytest.mark.parametrize("data", [b"PAR1PAR1", b"\x00" * 4096, os.urandom(2048), b"PAR1" + b"\xff" * 64 + b"PAR1"])
def test_garbage_is_malformed(data: bytes) -> None:
    facts = tiny.facts(tiny.work_of(), committed(tiny.honest(), sha256=sha256(data).digest()))
    assert judged(facts, data).code is Code.MALFORMED


def test_tokens_outside_the_vocabulary_never_reach_the_model() -> None:
    made, of = tiny.honest(), tiny.work_of()
    rows = [dataclasses.replace(row, output_tokens=(2**31 - 1, *row.output_tokens[1:])) for row in made.rollouts]
    sealed = tiny.producer().seal(of, rows)
    assert sealed.data == write(made.header, rows)
    assert tiny.verdict_on(sealed, of).code is Code.MALFORMED


def committed(made: Produced, **changes: Any) -> Produced:
    """The file, with another commitment on chain."""
    return dataclasses.replace(made, commitment=dataclasses.replace(made.commitment, **changes))


NODE = "0x" + "11" * 20


@pytest.fixture
def published(shared_suite: Deployed, tmp_path: Path) -> Iterator[Published]:
    with pool_service() as (service, url):
        made = Published(shared_suite, service, url, tmp_path)
        made.publish()
        yield made


@pytest.fixture
def client(published: Published, tmp_path: Path) -> Iterator[PoolClient]:
    made = PoolClient(published.config(tmp_path / "validator"), None)
    made.refresh()
    yield made
    made.close()


def work(published: Published, step: int) -> Work:
    return Work(WorkId(published.pool, NODE, step, 0), bytes(32), published.steps[step].digest)


def fetched(published: Published) -> Counter[str]:
    return Counter({path: count for path, count in published.service.asked.items() if path.startswith(OBJECTS)})


def published_ahead(published: Published, client: PoolClient) -> JudgedWeights:
    """The weights of a pool with a first file judged, once those of its next step were fetched ahead."""
    weights = JudgedWeights(client, 0.01, lambda: 4)
    assert contents(weights(work(published, 0))) == contents(published.folder / "v0")
    published.publish()
    client.refresh()
    wait_for("the next step", lambda: client.newest_weights == 1, 60, poll=0.02)
    return weights


def test_a_new_step_is_here_when_its_first_file_is_judged(published: Published, client: PoolClient) -> None:
    weights = published_ahead(published, client)
    before = fetched(published)
    assert contents(weights(work(published, 1))) == contents(published.folder / "v1")
    assert fetched(published) == before, "nothing was left to be fetched"


def test_what_was_damaged_since_is_not_judged_with(published: Published, client: PoolClient) -> None:
    weights = published_ahead(published, client)
    file = client.config.cache / published.steps[1].digest.hex() / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\0")
    assert contents(weights(work(published, 1))) == contents(published.folder / "v1")


def test_a_pool_that_asks_for_nothing_costs_nothing(published: Published, client: PoolClient) -> None:
    """Neither one that never had a file for us, nor one that has had none for many steps."""
    weights = JudgedWeights(client, 0.01, lambda: 4)
    time.sleep(0.3)
    assert not fetched(published)
    weights(work(published, 0))
    for _ in range(6):
        published.publish()
    client.refresh()
    time.sleep(0.5)
    keys = {f"{OBJECTS}/manifests/{sha256(step.canonical()).hexdigest()}" for step in published.steps[1:]}
    assert not keys & fetched(published).keys()


def accepts(facts: SubmissionFacts, data: bytes | None, *_: object) -> Verdict:
    return verdict_on(facts, world.CONFIG.digest, Code.ACCEPT, {})


def retaining(objects: Any, files: RetentionStore, judge_one: JudgeOne = accepts) -> FileJudge:
    loaded = LoadedEngine(engine("hf"))
    return ModelFreeJudge(world.CONFIG, loaded, Sources(objects), lambda _: Path(), None, files, judge_one)


def test_what_was_kept_is_judged_though_nobody_serves_it_again(tmp_path: Path) -> None:
    given, judge = world.context(), MagicMock(side_effect=accepts)
    facts, nobody = given.facts, MagicMock(side_effect=UnreachableError("nobody has it", "none"))
    place = facts.work.id.pool.pool, facts.sequence
    assert RetentionStore(tmp_path, 1 << 30).keep(place, facts.commitment.sha256, given.data)

    def verdict() -> Verdict:
        return retaining(nobody, RetentionStore(tmp_path, 1 << 30), judge).verdict(facts)

    assert verdict().code is Code.ACCEPT
    assert [call.args[1] for call in judge.call_args_list] == [given.data]
    (path,) = tmp_path.iterdir()
    path.write_bytes(b"a fault of the disk")
    with pytest.raises(UnreachableError):
        verdict()


@pytest.mark.parametrize("code", [Code.ACCEPT, Code.REJECT_WEIGHTS])
def test_the_lazy_and_the_lying_seat_can_be_judges(tmp_path: Path, code: Code) -> None:
    """The demo's lazy seat once could not vote, and kept silent in every lane instead."""
    given = world.context()
    judge = retaining(lambda key, limit: given.data, RetentionStore(tmp_path, 1 << 30), always(code))
    assert judge.verdict(given.facts).code is code


def test_files_of_a_node_challenge_take_no_room(tmp_path: Path) -> None:
    """Hundreds of them would have our committees' seats answer `unavailable` for want of it, and final ones need not be
    shown to anybody."""
    given = world.context()
    for as_worker, kept in ((False, 1), (True, 0)):
        files = RetentionStore(tmp_path / str(as_worker), 1 << 30)
        judge = retaining(lambda key, limit: given.data, files)
        assert judge.verdict(given.facts, as_worker=as_worker).code is Code.ACCEPT
        assert len(files.files) == kept
