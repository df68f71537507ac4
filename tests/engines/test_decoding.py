"""A rollout that is sampled in several requests has the noise and the proofs of one."""

import numpy as np
import pytest
import torch

from engines.base import Completion, Engine, Request, Sampling
from engines.decoding import from_bytes, to_bytes
from engines.hf import TransformersEngine
from runtime.turns import joined
from tests.engines.models import errors

PROMPT: tuple[int, ...] = (5, 6, 7, 8)
NONE = Sampling(1.0, ())


def in_parts(made: Engine, sizes: tuple[int, ...], inserted: tuple[int, ...] = ()) -> Completion:
    """A rollout in turns of these sizes, with the same tokens put after each but the last."""
    context, done = PROMPT, Completion((), (), 1, ())
    for size in sizes:
        asked = Request(context, (1, 2, 3), size, len(done.tokens), done.tail, goes_on=True)
        (turn,) = made.generate([asked], NONE)
        context, done = (*context, *turn.tokens, *inserted), joined(done, turn)
    return done


@pytest.mark.parametrize("sizes", [(70,), (1, 69), (31, 1, 38), (32, 32, 6), (33, 37), (5, 3, 2, 60), (64, 6)])
def test_parts_are_the_whole(engine: TransformersEngine, sizes: tuple[int, ...]) -> None:
    (whole,) = engine.generate([Request(PROMPT, (1, 2, 3), 70)], NONE)
    got = in_parts(engine, sizes)
    assert got.tokens == whole.tokens
    assert np.allclose(got.logprobs, whole.logprobs, atol=1e-4)
    assert len(got.proofs) == 3
    found = errors(engine, [Request(PROMPT, (1, 2, 3), 70)], [got])
    assert found["mismatches"] <= 1
    assert found["mantissa"] <= 0.1


def test_what_is_put_in_between_is_read_and_neither_sampled_nor_proven(engine: TransformersEngine) -> None:
    got, put = in_parts(engine, (10, 50), (9, 9, 9)), (9, 9, 9)
    assert got.tokens != in_parts(engine, (60,)).tokens
    found = errors(engine, [Request(PROMPT, (1, 2, 3), 60)], [got], [((10, put),)])
    assert found["mismatches"] <= 1
    assert found["gap"] < 1e-3


def test_rows_at_different_places_of_their_chunks_share_a_batch(engine: TransformersEngine) -> None:
    """Later turns begin anywhere; alone or together, each gets the same."""
    parts = [in_parts(engine, (size,)) for size in (3, 17, 32, 40)]
    asked = [Request((*PROMPT, *one.tokens), (1, 2, 3), 60, len(one.tokens), one.tail, goes_on=True) for one in parts]
    together = engine.generate(asked, NONE)
    for one, got, request in zip(parts, together, asked, strict=True):
        (alone,) = engine.generate([request], NONE)
        assert got.tokens == alone.tokens
        assert errors(engine, [Request(PROMPT, (1, 2, 3), 100)], [joined(one, got)])["mismatches"] <= 1


def test_tails_are_bytes_and_back_and_only_a_request_that_goes_on_has_one(engine: TransformersEngine) -> None:
    (done,) = engine.generate([Request(PROMPT, (1, 2, 3), 5)], NONE)
    assert done.tail == b""
    rows = torch.randn(3, 128).to(torch.bfloat16)
    assert torch.equal(from_bytes(to_bytes(rows), 35), rows)
    assert len(from_bytes(b"", 64)) == 0
    for tail, sampled in ((b"", 3), (b"ab", 32), (b"abc", 1)):
        with pytest.raises(ValueError, match="hidden states"):
            from_bytes(tail, sampled)
