"""Choosing an engine, and the environment of torch processes."""

import importlib.util
import subprocess
import sys

import pytest

from engines import factory, runtime
from protocol.errors import ConfigError, MusterError


def test_unknown_name() -> None:
    with pytest.raises(ConfigError, match="choose one of auto, transformers, vllm"):
        factory.make_engine("llama")


def test_missing_vllm_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None if name == "vllm" else real(name, *rest))
    with pytest.raises(MusterError, match="vLLM is not installed"):
        factory.make_engine("vllm")
    assert factory.make_engine("auto").info.name == "transformers"


def test_asking_an_engine_what_it_is_imports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A heartbeat asks, from a thread of its own: with the main thread importing, imports there broke transformers."""
    code = "import sys; from engines.factory import make_engine; make_engine('transformers'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert "transformers" in done.stdout.split()
    engine = factory.make_engine("transformers")

    def importing(name: str, *rest: object) -> None:
        raise AssertionError(f"imports {name}")

    monkeypatch.setattr("builtins.__import__", importing)
    assert engine.info.version


def test_environment() -> None:
    found = runtime.torch_environment(2)
    assert found["OMP_NUM_THREADS"] == "2"
    assert found["KMP_BLOCKTIME"] == "1"
    library = runtime.intel_openmp()
    assert ("LD_PRELOAD" in found) == (library is not None)


def test_importing_interfaces_does_not_import_torch() -> None:
    modules = "engines.base, engines.factory, engines.runtime"
    code = f"import sys, {modules}, protocol.toploc.codec, protocol.sampling.noise; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
