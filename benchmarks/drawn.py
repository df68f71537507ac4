"""What checking a row costs that is drawn alone, of generating it, by the length of answers: bf16, decode batch 16.

A model in Qwen2.5-0.5B's shape, one thread, prompts of 64 tokens. In every round 16 rows of two problems are generated,
and one of each problem is checked: what a 128th of 128 rows and the row that is always audited come to. Processor
seconds of one process; a ratio is within one round. Keys: lengths {tokens of an answer: {rounds, generate_ms_per_token,
verify_ms_per_token, of_generating (all medians), ratios (of each round), in_all: of_generating / 64}}, load (of one
minute, at the end), processor. `--only TOKENS`: answers of that length; `--count N`: rounds; neither is kept. A quick
run has 6 layers, two rounds and answers of 16 and 64 tokens.
"""

import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.verify import GROUP, PROMPT, WORK, processor, save_half_billion, verify_seconds
from engines.base import Request, Sampling
from engines.hf import TransformersEngine
from protocol.seeds import noise_key

BATCH = 16
LENGTHS = (128, 512)
ROUNDS = 3
DRAWN = (0, GROUP)
"""Rows that are checked: one of each problem, so that none shares its prompt."""


def run(quick: bool, progress: Callable[[str], None], only: str = "", count: int = 0) -> dict[str, Any]:
    lengths = [int(only)] if only else [16, 64] if quick else list(LENGTHS)
    rounds = count or (2 if quick else ROUNDS)
    source = random.Random(0)
    prompts = [tuple(source.randrange(151643) for _ in range(PROMPT)) for _ in range(BATCH // GROUP)]
    with tempfile.TemporaryDirectory() as folder:
        save_half_billion(Path(folder), layers=6 if quick else 24)
        engine = TransformersEngine("bfloat16", max_batch=BATCH)
        engine.load(Path(folder))
    _round(engine, prompts, 2)  # compiles what the first round would
    seen: dict[str, list[tuple[float, float]]] = {str(tokens): [] for tokens in lengths}
    for number in range(rounds):
        for tokens in lengths:
            seen[str(tokens)].append(_round(engine, prompts, tokens))
            made, checked = seen[str(tokens)][-1]
            progress(f"round {number + 1}, {tokens} tokens: {made:.3f} and {checked:.3f} ms per token")
    return {
        "lengths": {tokens: summary(pairs) for tokens, pairs in seen.items()},
        "load": round(os.getloadavg()[0], 1),
        "processor": processor(),
    }


def _round(engine: TransformersEngine, prompts: Sequence[tuple[int, ...]], tokens: int) -> tuple[float, float]:
    """Milliseconds per output token of generating and of checking rows that were drawn."""
    asked = [Request(prompts[row // GROUP], noise_key(WORK, row // GROUP, row % GROUP), tokens) for row in range(BATCH)]
    start = time.process_time()
    made = engine.generate(asked, Sampling(1.0, ()))
    generated = time.process_time() - start
    checked = verify_seconds(engine, {row: (asked[row], made[row]) for row in DRAWN}, {})
    return 1000 * generated / (BATCH * tokens), 1000 * checked / (len(DRAWN) * tokens)


def summary(pairs: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Medians of rounds of (generating, checking), in milliseconds per token."""
    ratios = [checked / made for made, checked in pairs]
    middle = statistics.median(ratios)
    return {
        "rounds": len(pairs),
        "generate_ms_per_token": round(statistics.median(made for made, _ in pairs), 3),
        "verify_ms_per_token": round(statistics.median(checked for _, checked in pairs), 3),
        "of_generating": round(middle, 4),
        "ratios": [round(ratio, 4) for ratio in ratios],
        "in_all": round(middle / 64, 5),
    }
