"""The noise stream against a plain-Python Philox, and the sieve against the plain definition."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from protocol.errors import MusterError
from protocol.sampling import noise
from tests.protocol.sampling.completion import verify_choices

M = (1 << 64) - 1
KEY = (0x0123456789ABCDEF, 0xFEDCBA9876543210, 0xFFFFFFFFFFFFFFFF)


def philox(counter: list[int], key: list[int]) -> list[int]:
    """Philox4x64-10 written from the paper, with Python's integers."""
    c, k = list(counter), list(key)
    for _ in range(10):
        low0, low1 = 0xD2E7470EE14C6C93 * c[0], 0xCA5A826395121157 * c[2]
        c = [(low1 >> 64) ^ c[1] ^ k[0], low1 & M, (low0 >> 64) ^ c[3] ^ k[1], low0 & M]
        k = [(k[0] + 0x9E3779B97F4A7C15) & M, (k[1] + 0xBB67AE8584CAA73B) & M]
    return c


def plain_uniforms(key: noise.NoiseKey, position: int, vocab: int) -> list[float]:
    out: list[float] = []
    block = 0
    while len(out) < vocab:
        for word in philox([block + 1, position, key[1], key[2]], [key[0], 0]):
            out += [(word & 0xFFFFFFFF), (word >> 32)]
        block += 1
    return [min((x + 0.5) * 2.0**-32, 1 - 2.0**-24) for x in out[:vocab]]


def stream(key: noise.NoiseKey, position: int, vocab: int) -> npt.NDArray[np.uint32]:
    """The first numbers of the compiled stream."""
    (key_words,), (place,) = noise._words([key], [position])
    blocks = -(-vocab // 8)
    words, ordered = np.empty((4, blocks), dtype=np.uint64), np.empty(4 * blocks, dtype=np.uint64)
    noise._philox(key_words, place, 0, blocks, words)
    noise._in_order(words, blocks, ordered)
    return ordered.view(np.uint32)[:vocab]


def test_known_answer() -> None:
    """Random123's published vector for Philox4x64-10 with all bits zero."""
    assert philox([0] * 4, [0] * 2) == [0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B]


@pytest.mark.parametrize("vocab", [1, 7, 8, 9, 265])
@pytest.mark.parametrize("position", [0, 1, 4095, 2**40])
def test_stream(position: int, vocab: int) -> None:
    uniforms = np.minimum((stream(KEY, position, vocab) + 0.5) * noise.U32, noise.U_MAX)
    assert uniforms.tolist() == plain_uniforms(KEY, position, vocab)


def test_scores_of_the_smallest_and_the_largest_number_are_finite() -> None:
    for raw, u in ((0xFFFFFFFF, 1 - 2.0**-24), (0, 2.0**-33)):
        assert noise._score(np.float32(3.5), np.uint32(raw), 0.7) == 3.5 / 0.7 - math.log(-math.log1p(-u))


def plain_choice(logits: np.ndarray, key: noise.NoiseKey, position: int, temperature: float) -> tuple[int, list[float]]:
    us = plain_uniforms(key, position, len(logits))
    scores = [float(x) / temperature - math.log(-math.log1p(-u)) for x, u in zip(logits, us, strict=True)]
    return max(range(len(scores)), key=lambda v: (scores[v], -v)), scores


@pytest.mark.parametrize("temperature", [0.3, 1.0, 7.5])
@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0, 1e4])
@pytest.mark.parametrize(("rows", "vocab"), [(40, 265), (12, 2 * noise._BLOCK + 3)])
def test_choice_is_the_plain_argmax(temperature: float, scale: float, rows: int, vocab: int) -> None:
    rng = np.random.default_rng(int(scale))
    logits = (rng.standard_normal((rows, vocab)) * scale).astype(np.float32)
    keys = [(row, 2, 3) for row in range(rows)]
    chosen = noise.choose(logits, keys, list(range(rows)), temperature)
    for row in range(rows):
        token, scores = plain_choice(logits[row], keys[row], row, temperature)
        assert chosen.tokens[row] == token
        other = (token + 1) % vocab
        measured = verify_choices(logits[row : row + 1], [other], keys[row], temperature, first=row)
        assert measured.gaps[0] == pytest.approx(scores[token] - scores[other], rel=1e-12, abs=1e-12)
        assert measured.best[0] == token
        shifted = logits[row].astype(np.float64) / temperature
        shifted -= shifted.max()
        assert chosen.logprobs[row] == pytest.approx(shifted[token] - np.log(np.exp(shifted).sum()), abs=1e-4)


def test_ties_go_to_the_lowest_token() -> None:
    """Two tokens of one row that drew the same number, far ahead of all others."""
    for position in range(50):
        raw = stream(KEY, position, 300_000)
        order = np.argsort(raw, kind="stable")
        twins = [order[at : at + 2] for at in np.flatnonzero(np.diff(raw[order]) == 0)]
        if twins:
            break
    logits = np.full((1, len(raw)), -1e3, dtype=np.float32)
    logits[0, twins[0]] = 1.0
    first, last = twins[0].tolist()
    assert first < last
    assert noise.choose(logits, [KEY], [position], 1.0).tokens[0] == first
    for mine in (first, last):
        seen = noise.verify_rows(logits, [mine], [KEY], [position], 1.0)
        assert (seen.best[0], seen.gaps[0]) == (first, 0.0)


def test_rows_are_independent_of_the_batch() -> None:
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((9, 70000)).astype(np.float32)
    keys = [(row, row, row) for row in range(9)]
    whole = noise.choose(logits, keys, [5] * 9, 1.0)
    for row in range(9):
        alone = noise.choose(logits[row : row + 1], keys[row : row + 1], [5], 1.0)
        assert alone.tokens[0] == whole.tokens[row]
        assert alone.logprobs[0] == pytest.approx(whole.logprobs[row], abs=1e-5)


def test_masked_tokens_are_never_chosen() -> None:
    logits = np.full((200, 16), -np.inf, dtype=np.float32)
    logits[:, 3] = -5.0
    chosen = noise.choose(logits, [KEY] * 200, list(range(200)), 1.0)
    assert set(chosen.tokens.tolist()) == {3}
    assert chosen.logprobs == pytest.approx(0.0)


def test_frequencies_follow_softmax() -> None:
    logits = np.log(np.array([[0.5, 0.3, 0.15, 0.05]], dtype=np.float32)).repeat(20000, axis=0)
    chosen = noise.choose(logits, [(1, 2, n) for n in range(20000)], [0] * 20000, 1.0)
    shares = np.bincount(chosen.tokens, minlength=4) / 20000
    assert shares == pytest.approx([0.5, 0.3, 0.15, 0.05], abs=0.015)


def test_gaps_are_zero_for_the_own_choice_and_catch_another_key() -> None:
    rng = np.random.default_rng(1)
    logits = rng.standard_normal((64, 265)).astype(np.float32) * 2
    tokens = noise.choose(logits, [KEY] * 64, list(range(64)), 1.0).tokens
    assert verify_choices(logits, tokens.tolist(), KEY, 1.0).gaps.tolist() == [0.0] * 64
    assert (verify_choices(logits, tokens.tolist(), (1, 2, 3), 1.0).gaps > 0.05).mean() > 0.5
    shifted = verify_choices(logits, tokens.tolist(), KEY, 1.0, first=1)
    assert (shifted.gaps > 0.05).mean() > 0.5


@pytest.mark.parametrize("bounded", [True, False])
def test_improbable_tokens_let_few_others_into_the_race(bounded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a limit that follows the best score, nearly a whole vocabulary is scored exactly."""
    logits = (np.random.default_rng(5).standard_normal((2, 20_000)) * 3).astype(np.float32)
    logits[1, 7] = -np.inf
    tokens = [int(logits[0].argmin()), 7]
    seen = noise.verify_rows(logits, tokens, [KEY, KEY], [0, 1], 1.0)
    plain = [plain_choice(row, KEY, position, 1.0) for position, row in enumerate(logits)]
    assert seen.best.tolist() == [token for token, _ in plain]
    assert seen.gaps[0] == pytest.approx(max(plain[0][1]) - plain[0][1][tokens[0]], abs=1e-9)
    assert seen.gaps[1] == np.inf
    best = noise.verify_rows(logits, seen.best.tolist(), [KEY, KEY], [0, 1], 1.0)
    assert seen.best_logprobs.tolist() == best.logprobs.tolist()
    assert not best.gaps.any()

    score, limit, scored = noise._score, noise._limit, []

    def counted(*facts: Any) -> Any:
        scored.append(facts)
        return score(*facts)

    monkeypatch.setattr(noise, "_score", counted)
    monkeypatch.setattr(noise, "_limit", lambda *facts: limit(*facts) if bounded else np.float32(1e30))
    interpreted = noise._race.py_func  # type: ignore[attr-defined]
    interpreted(
        logits, logits.argmax(1), np.array(tokens), *noise._words([KEY] * 2, [0, 1]), 1.0, seen.best, np.empty((5, 2))
    )
    assert (len(scored) < 100) is bounded


def test_rows_of_several_completions_measure_as_each_alone() -> None:
    rng = np.random.default_rng(5)
    logits = rng.standard_normal((30, 70000)).astype(np.float32) * 2
    tokens, keys = rng.integers(0, 70000, 30).tolist(), [(row // 10, 1, 2) for row in range(30)]
    whole = noise.verify_rows(logits, tokens, keys, [row % 10 for row in range(30)], 0.9, threads=7)
    for first in range(0, 30, 10):
        rows = slice(first, first + 10)
        alone = verify_choices(logits[rows], tokens[rows], keys[first], 0.9)
        for name, values in vars(alone).items():
            assert getattr(whole, name)[rows] == pytest.approx(values, rel=1e-6), name


def test_foreign_tokens_and_rows_without_token_key_or_position_are_refused() -> None:
    logits = np.zeros((2, 4), dtype=np.float32)
    for keys, positions in (([KEY], [0, 1]), ([KEY] * 2, [0])):
        with pytest.raises(MusterError, match=f"for {len(keys)} keys and {len(positions)} positions"):
            noise.verify_rows(logits, [1, 1], keys, positions, 1.0)
    for tokens in ([1, 4], [1, -1], [1]):
        with pytest.raises(MusterError, match="outside the vocabulary"):
            noise.verify_rows(logits, tokens, [KEY] * 2, [0, 1], 1.0)


@pytest.mark.parametrize(
    ("logits", "keys", "temperature", "said"),
    [
        (np.full((1, 4), np.nan, dtype=np.float32), [KEY], 1.0, "not finite"),
        (np.full((1, 4), -np.inf, dtype=np.float32), [KEY], 1.0, "not finite"),
        (np.zeros((1, 4)), [KEY], 1.0, "float32"),
        (np.zeros((2, 4), dtype=np.float32), [KEY], 1.0, "for 1 keys"),
        (np.zeros((1, 4), dtype=np.float32), [KEY], 0.0, "temperature"),
        (np.zeros((1, 4), dtype=np.float32), [(1 << 64, 0, 0)], 1.0, "64 bits"),
    ],
)
def test_bad_input_is_named(logits: np.ndarray, keys: list[noise.NoiseKey], temperature: float, said: str) -> None:
    with pytest.raises(MusterError, match=said):
        noise.choose(logits, keys, [0] * len(keys), temperature)


def test_moments_of_the_distribution() -> None:
    logits = np.random.default_rng(3).standard_normal((7, 5000)).astype(np.float32) * 3
    found = verify_choices(logits, [1] * 7, KEY, 0.8)
    p = np.exp(logits.astype(np.float64) / 0.8)
    p /= p.sum(axis=1, keepdims=True)
    assert found.log_root_sums == pytest.approx(np.log(np.sqrt(p).sum(axis=1)), abs=1e-5)
    assert found.log_square_sums == pytest.approx(np.log((p * p).sum(axis=1)), abs=1e-5)
