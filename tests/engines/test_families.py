"""Families of models through both engines, verification, trainer, export and reload, one tiny random model each."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from engines.base import Request, Sampling
from engines.hf import TransformersEngine
from engines.loading import same_layout
from engines.torch_process import vllm_installed
from environments.pool import PoolEnvironments
from environments.prompts import completion_text
from protocol.models import eos_ids, load_tokenizer
from tests.engines.families import CONFIG, FAMILIES, Family, measure

SAMPLING = Sampling(1.0, ())
NAMED = {family.name: family for family in FAMILIES}
BOTH = pytest.mark.skipif(not vllm_installed(), reason="vLLM is not installed")


@pytest.mark.parametrize("name", ["Llama 3", "Gemma 3"])
def test_a_family_generates_verifies_trains_and_reloads(tmp_path: Path, name: str) -> None:
    """In this process and without vLLM: some seconds."""
    measure(NAMED[name], tmp_path, ["transformers"], 2, lambda: ThreadPoolExecutor(1))


@pytest.mark.slow
@pytest.mark.vllm
@BOTH
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", NAMED)
def test_engines_verify_one_another_before_and_after_a_training_step(tmp_path: Path, name: str) -> None:
    """Each in a process of its own: vLLM keeps global state, and rewrites parts of transformers."""
    spawned = partial(ProcessPoolExecutor, 1, multiprocessing.get_context("spawn"))
    measure(NAMED[name], tmp_path, ["transformers", "vllm"], 3, spawned)


@pytest.fixture(scope="module", params=FAMILIES, ids=lambda family: family.name)
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Family, Path]:
    family: Family = request.param
    return family, family.save(tmp_path_factory.mktemp("family"))


def test_every_stop_token_is_known_and_no_chat_prompt_begins_twice(saved: tuple[Family, Path]) -> None:
    family, folder = saved
    tokenizer: Any = load_tokenizer(folder)
    environment = PoolEnvironments.of(CONFIG, folder)
    assert environment.eos_ids == tuple(sorted(tokenizer.convert_tokens_to_ids(list(family.ends))))
    prompt = environment.prompt(5, 0)
    begin = tokenizer.bos_token_id
    assert prompt.count(begin) == (1 if family.chat_template.startswith("{{ bos_token }}") else 0)
    text = tokenizer.decode(list(prompt))
    assert environment.problem(5).question in text
    assert environment.vocabulary == len(tokenizer) + family.padding


def test_a_long_text_in_parts_is_what_it_is_in_one_pass(
    saved: tuple[Family, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = TransformersEngine()
    engine.load(saved[1])
    long, other = tuple(range(5, 105)), tuple(range(7, 107))
    pairs = [((4,) * 9, long), (long[:90], other[:50]), (long[:90], long), (other, (5,))]
    whole = list(engine.prefill(pairs))
    monkeypatch.setattr("engines.prefill.PREFILL_TOKENS", 40)
    monkeypatch.setattr("engines.prefill._LEAST_PART", 4)
    passes: list[tuple[int, int]] = []
    inner = engine._forward

    def forward(ids: torch.Tensor, mask: torch.Tensor | None, positions: torch.Tensor, cache: Any) -> Any:
        passes.append((ids.shape[1], int(positions.max()) + 1))
        return inner(ids, mask, positions, cache)

    monkeypatch.setattr(engine, "_forward", forward)
    for one, parts in zip(whole, engine.prefill(pairs), strict=True):
        assert torch.allclose(one.states, parts.states, atol=1e-4)
    assert max(tokens * seen for tokens, seen in passes) <= 40**2, "what a part attends to stays as small"
    assert len(passes) > 15


def test_text_survives_each_kind_of_tokenizer(saved: tuple[Family, Path]) -> None:
    _, folder = saved
    tokenizer: Any = load_tokenizer(folder)
    for text in ("4 + 17 = 21", "The answer is 3.", "Größe → 数 🙂", "a  b\n\tc"):
        tokens = tokenizer.encode(text, add_special_tokens=False)
        assert completion_text(tokenizer, [*tokens, eos_ids(folder)[0]], eos_ids(folder)) == text


def test_weights_reload_in_place_whatever_the_layout_of_the_file(saved: tuple[Family, Path], tmp_path: Path) -> None:
    family, folder = saved
    asked = [Request((5, 6, 7), (number, 1, 2), 12) for number in range(4)]
    engine, fresh = TransformersEngine(), TransformersEngine()
    engine.load(folder)
    model, before = engine.model, engine.generate(asked, SAMPLING)
    engine.load(family.save(tmp_path, seed=1))
    assert (engine.model is model) == same_layout(model, folder) == (family.name != "Qwen3 MoE")
    fresh.load(tmp_path)
    after = engine.generate(asked, SAMPLING)
    assert after == fresh.generate(asked, SAMPLING)
    assert [one.tokens for one in after] != [one.tokens for one in before]
    engine.load(folder)
    assert engine.generate(asked, SAMPLING) == before
