"""The exact engine is equal to the bit in any batch, decoded or read back; the plain one, beside it, is not."""

from pathlib import Path

import pytest
import torch

from engines.base import Completion, Request, Sampling
from engines.exact import KEYS, ROWS, ExactEngine, tiled_attention, tiled_linear
from engines.hf import TransformersEngine
from protocol.sampling.device import choose
from protocol.toploc.proofs import build
from tests.engines.models import save_tiny

SAMPLING = Sampling(1.0, ())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tiny"))


def requests() -> list[Request]:
    return [Request(tuple(range(5, 5 + count)), (1, count, number), 40) for count in (3, 7) for number in range(6)]


def made(engine: TransformersEngine, batch: int) -> list[Completion]:
    engine.max_batch = batch
    return engine.generate(requests(), SAMPLING)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_batches_and_reading_back_change_no_bit(folder: Path, dtype: str) -> None:
    engine = ExactEngine(dtype)
    engine.load(folder)
    reference = made(engine, 64)
    assert all(made(engine, batch) == reference for batch in (1, 3, 5))
    for batch in (1, 64):
        engine.max_batch = batch
        with torch.inference_mode():
            texts = [(one.prompt, own.tokens) for one, own in zip(requests(), reference, strict=True)]
            read = list(engine.prefill(texts))
        for request, own, back in zip(requests(), reference, read, strict=True):
            count = len(own.tokens)
            chosen = choose(back.logits, [request.noise_key] * count, list(range(count)), 1.0)
            assert tuple(map(int, chosen.tokens)) == own.tokens
            assert tuple(map(float, chosen.logprobs)) == own.logprobs
            assert tuple(build(back.hidden)) == own.proofs


def test_the_plain_engine_depends_on_the_batch(folder: Path) -> None:
    engine = TransformersEngine("bfloat16")
    engine.load(folder)
    assert any(made(engine, batch) != made(engine, 64) for batch in (1, 3, 5))


def test_tiles_compute_what_the_layers_compute() -> None:
    torch.manual_seed(1)
    layer = torch.nn.Linear(48, 20).requires_grad_(False)
    for rows in (1, ROWS, ROWS + 3):
        x = torch.randn(2, rows, 48)
        torch.testing.assert_close(tiled_linear(layer, x), layer(x))
    for count, length in ((1, 5), (40, 40), (3, KEYS + 7)):
        query, key = torch.randn(2, 4, count, 16), torch.randn(2, 2, length, 16)
        seen = torch.ones(count, length, dtype=torch.bool).tril(length - count)
        wanted = torch.nn.functional.scaled_dot_product_attention(
            query, key.repeat_interleave(2, 1), key.repeat_interleave(2, 1), attn_mask=seen
        )
        for mask in (None, seen[None, None].expand(2, 1, -1, -1)):
            found, _ = tiled_attention(layer, query, key, key, mask)
            torch.testing.assert_close(found, wanted.transpose(1, 2), atol=1e-5, rtol=1e-5)
