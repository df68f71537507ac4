"""A file of a node challenge is measured by the engine that made it, where that can be had; another clears nobody."""

import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from engines.torch_process import arithmetic_of
from protocol.config import PoolConfig
from protocol.evidence.figures import arithmetic_label
from protocol.evidence.null_model import EvidenceConfig, PairNullModel, StepNullModels
from protocol.verdict import Code, Verdict
from runtime.process import EngineConfig
from tests.validator import world
from tests.validator.scripted import ModelFreeJudge
from tests.validator.test_challenges import BET, PAIR, challenge, final, verdicts
from validator.challenges import judge_challenge
from validator.judging import pipeline
from validator.judging.checks import SubmissionFacts, verdict_on
from validator.judging.pipeline import FileJudge, LoadedEngine, OtherEngines, others
from validator.judging.sources import Sources
from validator.judging.verdicts import VerdictStore


def engine(name: str) -> Any:
    info = SimpleNamespace(name=name, version="1", dtype="float32", device="cpu")
    return SimpleNamespace(info=info, load=lambda folder: None)


class Others(OtherEngines):
    """Has one engine, if that is asked for."""

    def __init__(self, only: Any = None) -> None:
        super().__init__()
        self._only = LoadedEngine(only)

    def of(self, key: str) -> LoadedEngine | None:
        return self._only if self._only.engine and self._only.key == key else None


def config_of(*pairs: tuple[str, str]) -> PoolConfig:
    evidence = EvidenceConfig(engines=tuple({worker for worker, _ in pairs})) if pairs else None
    return world.CONFIG.model_copy(update={"evidence": evidence})


def judge_of(
    folder: Path, own: str, other: Any, *pairs: tuple[str, str], kind: type[FileJudge] = ModelFreeJudge
) -> tuple[FileJudge, list[str]]:
    """A judge with the engine `own` and another; the names of those that it measured with. `other.fails`: with that."""
    used: list[str] = []

    def one(facts: SubmissionFacts, _: object, config: PoolConfig, __: object, engine: Any, *___: object) -> Verdict:
        if getattr(engine, "fails", False):
            raise RuntimeError("out of memory")
        used.append(engine.info.name)
        return verdict_on(facts, config.digest, Code.ACCEPT, vars(engine.info))

    objects: Any = lambda key, limit: world.context().data  # noqa: E731
    loaded, sources = LoadedEngine(engine(own), Others(other)), Sources(objects)
    made = kind(config_of(*pairs), loaded, sources, lambda _: folder, VerdictStore(folder), None, one)
    models = tuple(PairNullModel(worker=worker, verifier=verifier, bets=BET) for worker, verifier in pairs)
    known = StepNullModels(audit_rate=1, pairs=models) if models else None
    made._step_null_models = MagicMock(return_value=known)  # type: ignore[method-assign]
    return made, used


def judged(folder: Path, own: str, other: str, *pairs: tuple[str, str], as_worker: bool = True) -> str:
    """The engine that a file of `hf:float32:cpu` was measured with."""
    judge, used = judge_of(folder, own, engine(other) if other else None, *pairs)
    found = [judge.verdict(world.context().facts, as_worker=as_worker).engine["name"] for _ in range(2)]
    assert found == used * 2, "a kept verdict of the same engine is not judged again"
    return found[0]


SELF = ("hf:float32:cpu", "hf:float32:cpu")
CROSS = ("hf:float32:cpu", "vllm:float32:cpu")


@pytest.mark.parametrize(
    ("own", "other", "pairs", "as_worker", "used"),
    [
        ("vllm", "hf", (SELF, CROSS), True, "hf"),
        ("vllm", "hf", (CROSS,), True, "vllm"),  # no null model of it by itself
        ("vllm", "hf", (), True, "vllm"),
        ("vllm", "hf", (SELF, CROSS), False, "vllm"),
        ("hf", "vllm", (SELF, CROSS), True, "hf"),
    ],
)
def test_the_workers_engine_measures_where_the_step_has_its_null_model_and_the_machine_has_it(
    tmp_path: Path, own: str, other: str, pairs: tuple[tuple[str, str], ...], as_worker: bool, used: str
) -> None:
    assert world.context().header.engine.startswith("hf")
    assert judged(tmp_path, own, other, *pairs, as_worker=as_worker) == used


def test_a_machine_without_it_says_so_and_judges_as_it_can(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert judged(tmp_path, "vllm", "", SELF, CROSS) == "vllm"
    assert "hf:float32:cpu, which is not installed here" in caplog.text


@pytest.mark.parametrize("at_loading", [True, False])
def test_where_the_workers_engine_fails_ours_measures(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, at_loading: bool
) -> None:
    """Or whoever names an engine that jurors' machines have no room for beside theirs would be judged by nobody."""
    broken, load = engine("hf"), MagicMock(side_effect=RuntimeError("out of memory") if at_loading else None)
    broken.load, broken.fails = load, True
    judge, _ = judge_of(tmp_path, "vllm", broken, SELF, CROSS, kind=FileJudge)
    judge._following = MagicMock()
    with caplog.at_level(logging.WARNING):
        found = [judge.verdict(world.context().facts, as_worker=True).engine["name"] for _ in range(3)]
    assert found == ["vllm"] * 3
    assert load.call_count == 1, "an engine that takes minutes to fail is tried once"
    assert "out of memory" in caplog.text


def test_an_engine_that_does_not_start_is_as_if_it_were_not_there(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    started: list[EngineConfig] = []

    def fail(config: EngineConfig) -> None:
        started.append(config)
        raise ImportError("no such library")

    monkeypatch.setattr(EngineConfig, "make", fail)
    held = OtherEngines([EngineConfig(name="vllm", dtype="bfloat16")])
    key = arithmetic_label("vllm", "bfloat16", arithmetic_of("cpu"))
    assert [held.of(key) for _ in range(2)] == [None, None]
    assert len(started) == 1
    assert "does not start: no such library" in caplog.text


def test_a_verdict_kept_from_another_engine_is_not_taken_for_the_workers(tmp_path: Path) -> None:
    """The committee's verdict lies on disk under the same facts where everything is audited."""
    assert judged(tmp_path, "vllm", "hf", SELF, CROSS, as_worker=False) == "vllm"
    assert judged(tmp_path, "vllm", "hf", SELF, CROSS) == "hf"


def policy(own_engine: bool) -> EvidenceConfig:
    return EvidenceConfig(engines=(PAIR[0],), own_engine=own_engine)


def test_another_engine_convicts_but_does_not_clear_where_the_pool_asks_for_the_workers() -> None:
    files, named = [final(number) for number in range(16)], challenge(*range(16))
    assert judge_challenge(named, files, policy(True), verdicts(16, 1)).code is Code.DIFFERENT
    blind = judge_challenge(named, files, policy(True), verdicts(16, 0))
    assert blind.code is Code.UNAVAILABLE
    assert "by another engine than made files 0, 1" in blind.why
    assert judge_challenge(named, files, policy(False), verdicts(16, 0)).code is Code.ACCEPT
    vllm = {"name": "vllm", "version": "1", "dtype": "bfloat16", "device": "cpu"}
    own = {number: replace(one, engine=vllm) for number, one in verdicts(16, 0).items()}
    assert judge_challenge(named, files, policy(True), own).code is Code.ACCEPT


def test_a_machine_holds_what_is_installed_or_named(monkeypatch: pytest.MonkeyPatch) -> None:
    own = EngineConfig(name="transformers", dtype="bfloat16")
    monkeypatch.setattr(pipeline, "vllm_installed", lambda: True)
    assert [(one.name, one.dtype) for one in others(own)] == [("vllm", "bfloat16")]
    assert [one.name for one in others(own.model_copy(update={"name": "auto"}))] == ["transformers"]
    monkeypatch.setattr(pipeline, "vllm_installed", lambda: False)
    assert others(own) == ()
