"""The null models that a policy step is published with: learned once, before it is on chain, or not at all."""

import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from protocol.errors import MusterError
from protocol.evidence.figures import BETS
from protocol.evidence.null_model import Bet, EvidenceConfig, PairNullModel, StepNullModels
from tests.storage.weights.folders import PUBLISHER
from tests.storage.weights.stepping import step_folder
from tests.trainer.test_publish import Objects, publisher
from tests.validator import tiny
from trainer.child import run_child
from trainer.config import NullModelConfig
from trainer.pool import null_models
from trainer.pool.null_models import NullModelLearner

BETTING = {"gaps": (Bet(tilt=1, rate=0.1, most=2),) * BETS}
MODELS = StepNullModels(audit_rate=4096, pairs=(PairNullModel(worker="w", verifier="v", bets=BETTING),))
EVIDENCE = EvidenceConfig(engines=("transformers:float32:cpu",))


class World:
    """A trainer whose child writes MODELS, or fails with `failure`, and a chain with `steps`."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch, **config: Any) -> None:
        self.chain = SimpleNamespace(steps=[], terms=SimpleNamespace(auditRate=4096))
        self.publisher, self.runs = publisher(Objects(), home, pool=self.chain), list[list[str]]()
        self.failure: Exception | None = None
        pool = tiny.CONFIG.model_copy(update={"evidence": config.pop("evidence", EVIDENCE)})
        engine: Any = SimpleNamespace(device="cpu", threads=1)
        trainer: Any = SimpleNamespace(engine=engine, null_models=NullModelConfig(**config))
        client: Any = SimpleNamespace(pool=lambda: self.chain)
        self.learner = NullModelLearner(pool, trainer, client, self.publisher)
        monkeypatch.setattr(null_models, "run_child", self.run)
        monkeypatch.setattr(null_models, "vllm_installed", lambda: False)
        monkeypatch.setattr(null_models, "arithmetic_of", lambda device: device)

    def run(self, what: str, argv: list[str], *_: Any) -> None:
        self.runs.append(argv)
        if self.failure is not None:
            raise self.failure
        out = Path(argv[argv.index("--out") + 1])
        out.parent.mkdir(exist_ok=True)
        out.write_text(MODELS.model_dump_json())


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., World]:
    return partial(World, tmp_path, monkeypatch)


def test_a_step_is_published_with_what_was_learned_of_its_weights(tmp_path: Path, make: Callable[..., World]) -> None:
    step_folder(tmp_path / "policies" / "step-000003", 3)
    world = make()
    assert world.publisher.prepared(3, (b"\1" * 32,) * 3).manifest.null_models is None
    world.learner.learn(3)
    (argv,) = world.runs
    for option, value in (("--weights", tmp_path / "policies/step-000003"), ("--audit-rate", 4096), ("--step", 3)):
        assert argv[argv.index(option) + 1] == str(value)
    assert argv[argv.index("--engine") + 1] == "transformers:float32:cpu"
    manifest = world.publisher.prepared(3, (b"\1" * 32,) * 3).manifest
    assert manifest.null_models == MODELS
    assert manifest.pool_id == PUBLISHER.pool
    assert type(manifest).model_validate_json(manifest.canonical()).digest == manifest.digest


def test_a_restart_between_learning_and_publishing_learns_nothing_anew(make: Callable[..., World]) -> None:
    """Another null model would be another manifest."""
    first = make()
    first.learner.learn(3)
    again = make()
    assert not again.learner.due(3)
    again.learner.learn(3)
    assert again.runs == []


def test_a_step_on_chain_gets_none_afterwards(make: Callable[..., World]) -> None:
    """Whoever learns a null model once files are there could fit it to a node."""
    world = make()
    world.chain.steps = [SimpleNamespace()] * 4
    world.learner.learn(3)
    assert world.runs == []
    assert world.learner.due(4)


@pytest.mark.parametrize(
    ("failure", "why"),
    [(MusterError("it took longer than 1 s"), "it took longer"), (OSError(28, "No space left", "/tmp/x"), "/tmp/x")],
)
def test_a_step_whose_learning_fails_is_published_without(
    make: Callable[..., World], caplog: pytest.LogCaptureFixture, failure: Exception, why: str
) -> None:
    world = make()
    world.failure = failure
    world.learner.learn(3)
    world.learner.learn(3)
    assert len(world.runs) == 1, "a step that waits for its upload does not learn again and again"
    (line,) = [line for line in caplog.messages if "step 3 has no null model, and its files give no evidence" in line]
    assert why in line
    assert not world.publisher.null_model_file(3).exists()


def test_what_is_not_asked_for_is_not_learned(make: Callable[..., World]) -> None:
    assert not make(evidence=None).learner.due(0)
    assert [make(every=3).learner.due(step) for step in range(4)] == [True, False, False, True]
    other = make(evidence=EvidenceConfig(engines=("vllm:bfloat16:cuda",)))
    other.learner.learn(0)
    assert other.runs == [], "this machine has none of the pool's engines"


def test_a_data_pools_steps_share_the_null_models_of_their_weights(make: Callable[..., World]) -> None:
    world = make()
    for step in range(3):
        world.learner.learn(step, same_as=0)
    assert len(world.runs) == 1
    assert len({world.publisher.null_model_file(step).read_bytes() for step in range(3)}) == 1


def test_a_child_that_ends_within_a_character_is_named(tmp_path: Path) -> None:
    code = "import sys; sys.stdout.buffer.write(b'no room for \\xe2\\x82'); sys.exit(3)"
    with pytest.raises(MusterError, match="ended with code 3: no room for"):
        run_child("a child", [sys.executable, "-c", code], tmp_path, threading.Event(), 60, 1)
