"""Choosing an engine, and the environment of torch processes."""

import importlib.util
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engines import torch_process
from engines.hf import TransformersEngine
from engines.torch_process import StepPace, arithmetic_of, device_lost, prepare_vllm
from protocol.errors import ConfigError, MusterError
from runtime.process import EngineConfig
from validator.judging.pipeline import LoadedEngine, OtherEngines


def test_an_engine_that_cannot_be_had_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None if name == "vllm" else real(name, *rest))
    with pytest.raises(MusterError, match="vLLM is not installed"):
        EngineConfig(name="vllm").make()
    assert EngineConfig(name="auto").make().info.name == "transformers"


def test_asking_an_engine_what_it_is_imports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A heartbeat asks, from a thread of its own: with the main thread importing, imports there broke transformers."""
    code = "import sys; from engines.hf import TransformersEngine; TransformersEngine(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert "transformers" in done.stdout.split()
    engine = TransformersEngine()

    def importing(name: str, *rest: object) -> None:
        raise AssertionError(f"imports {name}")

    monkeypatch.setattr("builtins.__import__", importing)
    assert engine.info.version


def test_environment_and_importing_interfaces_without_torch() -> None:
    found = torch_process.torch_environment(2)
    assert found["OMP_NUM_THREADS"] == "2"
    assert found["KMP_BLOCKTIME"] == "1"
    assert ("LD_PRELOAD" in found) == (torch_process.intel_openmp() is not None)
    modules = "engines.base, runtime.process, engines.torch_process"
    code = f"import sys, {modules}, protocol.toploc.codec, protocol.sampling.noise; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Moves when it is told to."""
    standing = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(torch_process, "time", SimpleNamespace(monotonic=lambda: standing.now))
    return standing


def warm() -> StepPace:
    """Of a process whose first computation is over."""
    steps = StepPace()
    with steps.computing():
        pass
    return steps


def test_a_step_is_overdue_once_it_takes_far_longer_than_any_before(clock: SimpleNamespace) -> None:
    steps = warm()
    with steps.computing():
        for _ in range(3):
            clock.now += 0.5
            steps.step()
        clock.now += 9.9
        assert steps.overdue() == 0.0
        clock.now += 0.2
        assert steps.overdue() == pytest.approx(10.1)
        steps.step()
        assert steps.overdue() == 0.0
    clock.now += 1e6
    assert steps.overdue() == 0.0, "nothing is computed"


def test_quick_steps_have_seconds_and_the_first_of_a_process_minutes(clock: SimpleNamespace) -> None:
    steps = StepPace()
    with steps.computing():
        clock.now += 60
        steps.step()
        clock.now += 119
        assert steps.overdue() == 0.0
        clock.now += 2
        assert steps.overdue() == pytest.approx(121)
    assert steps.longest == 0.0, "what compiles is no measure"
    assert steps.steps == 1, "it ended all the same"
    quick = warm()
    with quick.computing():
        clock.now += 0.01
        quick.step()
        clock.now += 4.9
        assert quick.overdue() == 0.0
        clock.now += 0.2
        assert quick.overdue() > 5.0


def test_blocks_within_a_block_and_steps_outside_of_any_change_nothing(clock: SimpleNamespace) -> None:
    steps = StepPace()
    clock.now += 50
    steps.step()
    assert steps.longest == 0.0
    assert steps.steps == 0
    steps = warm()
    with steps.computing():
        clock.now += 1
        steps.step()
        with steps.computing():
            clock.now += 30
            assert steps.overdue() == pytest.approx(30)
        assert steps.overdue() == pytest.approx(30), "the outer computation goes on"


def test_a_device_is_named_by_what_libraries_choose_kernels_by(monkeypatch: pytest.MonkeyPatch) -> None:
    for kernels, machine, name in [
        ("AVX512", "x86_64", "cpu"),
        ("AVX2", "x86_64", "cpu:kernels=x86_64-avx2"),
        ("DEFAULT", "arm64", "cpu:kernels=arm64-default"),
        ("SVE256", "aarch64", "cpu:kernels=aarch64-sve256"),
    ]:
        monkeypatch.setattr("platform.machine", lambda machine=machine: machine)
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda kernels=kernels: kernels)
        assert arithmetic_of("cpu") == name
    monkeypatch.setattr(torch.cuda, "get_device_capability", {"cuda:0": (9, 0), "cuda:1": (9, 0), "cuda": (8, 9)}.get)
    monkeypatch.setattr(torch, "__version__", "2.13.0+cu130")
    assert arithmetic_of("cuda") == "cuda:build=torch2.13.0+cu130,card=sm89"
    assert arithmetic_of("cuda:1") == arithmetic_of("cuda:0") == "cuda:build=torch2.13.0+cu130,card=sm90"
    assert arithmetic_of("cuda:1", tp=2) == "cuda:build=torch2.13.0+cu130,card=sm90,tp=2"


def test_an_error_after_which_a_device_is_lost_is_told_from_memory_that_ran_out() -> None:
    def wrapped(error: Exception) -> MusterError:
        try:
            raise MusterError("the engine failed") from error
        except MusterError as caught:
            return caught

    assert device_lost(wrapped(torch.AcceleratorError("CUDA error: an illegal memory access was encountered")))
    assert not device_lost(wrapped(torch.OutOfMemoryError("CUDA out of memory")))
    assert device_lost(RuntimeError("Worker failed with error 'CUDA error: unspecified launch failure'"))


def test_one_kind_of_processor_is_not_taken_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """An honest node without AVX-512 would be accused with its first file by jurors with it, and the other way round:
    neither its files nor such a juror's measurements belong to the same null model."""
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    usual = LoadedEngine(TransformersEngine("bfloat16")).key
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    other = LoadedEngine(TransformersEngine("bfloat16")).key
    assert other != usual
    made: Any = TransformersEngine("bfloat16")
    monkeypatch.setattr(EngineConfig, "make", lambda _: made)
    held = OtherEngines([EngineConfig(dtype="bfloat16")])
    assert held.of(usual) is None, "what it would start computes otherwise"
    assert held.of(other) is not None


@pytest.mark.parametrize(
    ("seen", "device", "ranks", "left"),
    [
        (None, "cuda", 2, None),
        (None, "cuda:2", 1, "2"),
        ("4,5,6", "cuda:1", 2, "5,6"),
        ("GPU-a,GPU-b", "cuda:1", 1, "GPU-b"),
    ],
)
def test_vllm_sees_the_gpus_from_its_device_on(
    monkeypatch: pytest.MonkeyPatch, seen: str | None, device: str, ranks: int, left: str | None
) -> None:
    monkeypatch.setattr("os.environ", {} if seen is None else {"CUDA_VISIBLE_DEVICES": seen})
    assert prepare_vllm(device, ranks), "a GPU has model runner V2"
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == left


def test_only_vllm_divides_a_model_over_gpus() -> None:
    with pytest.raises(ConfigError, match="tensor_parallel 2"):
        EngineConfig(name="transformers", tensor_parallel=2).make()
