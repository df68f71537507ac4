"""Processors whose kernels round differently are not one kind of machine to a law of evidence."""

from typing import Any

import pytest
import torch

from engines.hf import TransformersEngine
from engines.runtime import arithmetic_of
from protocol.evidence.null_model import EvidenceConfig, PairNullModel
from runtime.process import EngineConfig
from validator.judging.pipeline import LoadedEngine, OtherEngines


@pytest.mark.parametrize(
    ("kernels", "machine", "name"),
    [
        ("AVX512", "x86_64", "cpu"),
        ("AVX2", "x86_64", "cpu-x86_64-avx2"),
        ("DEFAULT", "arm64", "cpu-arm64-default"),
        ("SVE256", "aarch64", "cpu-aarch64-sve256"),
    ],
)
def test_a_processor_is_named_by_its_kernels(
    monkeypatch: pytest.MonkeyPatch, kernels: str, machine: str, name: str
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: kernels)
    assert arithmetic_of("cpu") == name
    assert arithmetic_of("cuda") == "cuda"


def test_a_law_of_one_kind_of_processor_says_nothing_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """An honest node without AVX-512 would be accused with its first file by jurors with it, and the other way round:
    neither its files nor such a juror's measurements belong to the law."""
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    usual = LoadedEngine(TransformersEngine("bfloat16")).key
    law = EvidenceConfig(audit_rate=65536, null_models=(PairNullModel(worker=usual, verifier=usual, bets={}),))
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    other = LoadedEngine(TransformersEngine("bfloat16")).key
    assert law.refuses(other)
    assert other != usual
    made: Any = TransformersEngine("bfloat16")
    monkeypatch.setattr(EngineConfig, "make", lambda _: made)
    held = OtherEngines([EngineConfig(dtype="bfloat16")])
    assert held.of(usual) is None, "what it would start computes otherwise"
    assert held.of(other) is not None
