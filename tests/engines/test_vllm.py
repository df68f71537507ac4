"""The vLLM engine agrees with the transformers engine; each case is a process, for vLLM keeps global state."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engines.base import Request, Sampling
from engines.torch_process import torch_environment, vllm_installed
from engines.vllm import VllmEngine, cache_need, check_settings
from protocol.errors import ConfigError, MusterError

pytestmark = [pytest.mark.vllm, pytest.mark.skipif(not vllm_installed(), reason="vLLM is not installed")]


def test_the_cache_of_a_small_model_is_small() -> None:
    shape = {"num_hidden_layers": 24, "hidden_size": 896, "num_attention_heads": 14, "num_key_value_heads": 2}
    assert cache_need(shape, 512, 16, 2) == 2 * 24 * 2 * 64 * 2 * 128 * (16 * 5 + 1)
    assert cache_need(shape, 512, 1, 2) == 64 << 20
    assert cache_need(shape, 4096, 512, 2) == 1 << 30
    assert cache_need({"hidden_size": "?"}, 512, 1, 2) == 1 << 30


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cache": "fp8_e4m3"}, "keeps keys and values in fp8_e4m3"),
        ({"cache": "bfloat16"}, "keeps keys and values in bfloat16"),
        ({"quant": object()}, "quantises weights"),
        ({"draft": object()}, "speculates"),
    ],
)
def test_settings_that_change_what_is_computed_are_refused(changes: dict[str, Any], words: str) -> None:
    def config(cache: str = "auto", quant: Any = None, draft: Any = None) -> Any:
        kept = SimpleNamespace(cache_dtype=cache)
        return SimpleNamespace(cache_config=kept, quant_config=quant, speculative_config=draft)

    check_settings(config(), "float32")
    check_settings(config("float32"), "float32")
    with pytest.raises(ConfigError, match=words):
        check_settings(config(**changes), "float32")


def test_a_file_that_vllm_does_not_take_ends_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for the others would wait for ever: the engine would know nothing of them any more."""
    engine, aborted, forgotten = VllmEngine.__new__(VllmEngine), list[str](), list[int]()
    inner = SimpleNamespace(
        abort_request=lambda names, internal: aborted.extend(names),
        output_processor=SimpleNamespace(request_states=["0", "1", "2"]),
    )
    engine._llm = SimpleNamespace(llm_engine=inner, collective_rpc=lambda name, args: forgotten.extend(args[0]))
    engine._making, engine._ended = {}, {}

    def ask(ticket: int, *given: Any, **options: Any) -> str:
        if ticket == 3:
            raise ValueError("not this one")
        return str(ticket)

    monkeypatch.setattr(engine, "_check", lambda *given: None)
    monkeypatch.setattr(engine, "_ask", ask)
    one = Request((5, 6), (1, 1, 1), 9)
    assert engine.add([one, one], Sampling(1.0, ())) == [0, 1]
    with pytest.raises(MusterError, match="not this one"):
        engine.add([one, one], Sampling(1.0, ()))
    assert (list(engine._making), aborted, forgotten) == ([0, 1], ["2"], [2])


def run_evidence(name: str, folder: Path, program: str = "vllm_case") -> dict[str, Any]:
    return run_case(program, name, str(folder))


def run_case(program: str, *arguments: str, timeout: float = 240, **environment: str) -> dict[str, Any]:
    command = [sys.executable, "-m", f"tests.engines.{program}", *arguments]
    env = os.environ | torch_environment() | environment
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    if program == "vllm_case":  # the case itself saves a model
        found["noise"] = [line for line in done.stderr.split("\n") if line.strip("\r ") and "Writing model" not in line]
    return found


def check(found: dict[str, Any], **most: float) -> None:
    """Each measurement is at most so large."""
    assert {name: found[name] for name, limit in most.items() if not found[name] <= limit} == {}


def test_float32_agrees_token_for_token(tmp_path: Path) -> None:
    """Joins, leaves, one-token outputs, hot reload, refusals: see vllm_case.py."""
    found = run_evidence("float32", tmp_path)
    assert found["same"] == found["rollouts"]
    assert found["same_after_reload"] == found["rollouts"]
    assert found["changed_by_reload"] > found["rollouts"] // 2
    check(found, mismatches=1, mantissa=0.1, gap=1e-3, logprob=1e-3, turn_mismatches=1, turn_gap=1e-3)
    assert found["refused"] == ["positions", "vocabulary", "another kind", "empty prompt"]
    assert found["turn_tokens"] == 12 * 40 + sum(range(1, 13))
    assert found["noise"] == [], "who makes a file sees its table alone"


@pytest.mark.slow
def test_preemption_keeps_proofs_right(tmp_path: Path) -> None:
    """A KV cache too small for the batch: requests are preempted and recomputed."""
    found = run_evidence("preemption", tmp_path)
    assert found["same"] == found["rollouts"]
    assert found["preemptions"] > 0
    assert found["mismatches"] <= 1


@pytest.mark.slow
def test_bfloat16_stays_within_its_band(tmp_path: Path) -> None:
    check(run_evidence("bfloat16", tmp_path), mismatches=12, mantissa=10, mismatches_after_reload=12)


def test_vllm_verifies_as_transformers_does_in_float32(tmp_path: Path) -> None:
    """Prefill of shared prompts and many lengths, small windows, hot reload, failures: see vllm_prefill_case.py."""
    found = run_evidence("float32", tmp_path, "vllm_prefill_case")
    assert found["lengths"][0] == 1
    assert len(found["lengths"]) > 8
    for distance in (found["distance"], found["reloaded_distance"]):
        assert distance["sound"]
        assert distance["sequences"] == 90
        check(distance, logits=1e-4)
    for honest in (found["theirs"], found["own"], found["reloaded"]):
        check(honest, mismatches=0, mantissa=0.05, gap=0, logprob=1e-4)
    assert found["stale"]["mismatches"] > 20
    assert found["stale"]["gap"] > 0.5
    check(found, windows=1e-4, left=0)
    assert found["refused"] == ["no output", "vocabulary", "vocabulary", "empty prompt", "positions"]
    assert found["goes_on"]


@pytest.mark.slow
def test_vllm_verifies_within_its_band_in_bfloat16(tmp_path: Path) -> None:
    found = run_evidence("bfloat16", tmp_path, "vllm_prefill_case")
    for distance in (found["distance"], found["reloaded_distance"]):
        assert distance["sound"]
        check(distance, logits=0.25)
    for honest in (found["theirs"], found["own"], found["reloaded"]):
        check(honest, mismatches=16, mantissa=10, gap=0.5, logprob=0.2)
    assert found["stale"]["mismatches"] > 20


@pytest.mark.slow
def test_two_processes_with_half_of_the_model_each(tmp_path: Path) -> None:
    """Tensor parallelism; on GPUs it is the same code."""
    found = run_evidence("float32", tmp_path, "vllm_parallel_case")
    for weights in (found["first"], found["second"]):
        assert weights["same"] == weights["distance"]["sequences"] == 30
        assert weights["distance"]["sound"]
        check(weights["distance"], logits=1e-4)
        for honest in (weights["theirs"], weights["own"]):
            check(honest, mismatches=0, gap=0)


def test_rows_find_their_completions_in_model_runner_2() -> None:
    """Slots are recycled, batches reordered, prompts split, requests preempted and over-run: see vllm_slots_case.py."""
    assert run_case("vllm_slots_case", "1") == {"same": 20, "proofs": 20, "prompts": 4, "kept": 0}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed (make peers)")
def test_model_runner_2_agrees_token_for_token(tmp_path: Path) -> None:
    """vLLM's own runner for GPUs, its kernels interpreted: see vllm_second_case.py."""
    wanted = {"TRITON_INTERPRET": "1", "VLLM_USE_V2_MODEL_RUNNER": "1"}
    found = run_case("vllm_second_case", str(tmp_path), timeout=1700, **wanted)
    assert found["runner"] == "vllm.v1.worker.gpu.model_runner"
    assert found["ahead"]
    assert (found["same"], found["reloaded"]) == (5, 2)
    for part in ("judged", "own", "turn"):
        check(found[part], mismatches=1, mantissa=0.1, gap=1e-3, logprob=1e-3)
