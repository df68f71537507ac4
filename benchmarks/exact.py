"""Whether the exact engine's work is equal to the bit whatever batch decodes it and whatever batch reads it back.

`python -m benchmarks exact [--quick] [--resume] [--seconds S]`. The demo's model in float32 and in bfloat16 on one
thread: files of 128 rollouts are decoded in batches of 64, which is the reference, and of 1 to 48, and each is read
back in prefills of 1, 16 and 64 rows; the plain engine does the same for comparison with fewer files. A finished file
is a line of results/exact_runs.jsonl at once, which `--resume` takes from there on any machine of the same build of
torch; `--seconds` ends after so long.

Keys: made (tokens that the exact engine decoded as the reference), tokens (of all decodes and prefills of it that were
compared with that), differing (of these); runs [{engine, dtype, files, made, tokens, differing: tokens, ln p or proofs
that are not the reference's, slowdown: of decoding and prefill in batches of 16, processor seconds over the plain
engine's, of the files that both made}]; left: files that are not made yet.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.journal import append, resumed
from benchmarks.offline_pool import BFLOAT16, ENVIRONMENT, FLOAT32, FULL_WORK, OfflinePool, Progress, work_of
from engines.base import Completion, Request
from engines.exact import ExactEngine
from engines.hf import TransformersEngine
from protocol.sampling.device import choose
from protocol.toploc.proofs import build_many
from trainer.base_model import base_model
from trainer.tiny_model import tiny_model_config

KEPT_RUNS = Path(__file__).parent / "results" / "exact_runs.jsonl"
QUICK_RUNS = Path(__file__).parent.parent / "build" / "exact-quick.jsonl"
REFERENCE, BATCHES, READS, TIMED = 64, (1, 2, 3, 5, 16, 48), (1, 16, 64), 16
ENGINES: dict[str, Callable[..., TransformersEngine]] = {"exact": ExactEngine, "plain": TransformersEngine}
FILES = {"exact": 43, "plain": 2}
Row = dict[str, Any]
Which = tuple[str, str, int]
_KEY = ("engine", "dtype", "number")


def run(quick: bool, progress: Progress, resume: bool = False, seconds: int = 0) -> dict[str, Any]:
    """See the module."""
    ends = time.monotonic() + seconds if seconds else float("inf")
    folder = base_model(tiny_model_config(), ENVIRONMENT, 1, progress=progress)
    path = QUICK_RUNS if quick else KEPT_RUNS
    made = kept(path, resume)
    wanted = [
        (name, dtype, number)
        for number in range(1 if quick else max(FILES.values()))
        for dtype in (FLOAT32, BFLOAT16)
        for name in ENGINES
        if number < FILES[name]
    ]
    for which in wanted:
        if which not in made and time.monotonic() < ends:
            made[which] = measure(folder, *which)
            append(path, dict(zip(_KEY, which, strict=True)) | {"torch": torch.__version__} | made[which])
            progress(f"{which}: {made[which]}")
    runs = [_summary(made, *which) for which in dict.fromkeys((name, dtype) for name, dtype, _ in wanted)]
    exact = [one for one in runs if one["engine"] == "exact"]
    return {
        "made": sum(one["made"] for one in exact),
        "tokens": sum(one["tokens"] for one in exact),
        "differing": sum(one["differing"] for one in exact),
        "runs": runs,
        "left": sum(which not in made for which in wanted),
    }


def kept(path: Path, resume: bool) -> dict[Which, Row]:
    """The files made so far with this build of torch; without `resume` none, and the lines are gone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not resume:
        path.unlink(missing_ok=True)
    found = [one for one in resumed(path) if one["torch"] == torch.__version__]
    return {
        (one["engine"], one["dtype"], one["number"]): {name: one[name] for name in one if name not in (*_KEY, "torch")}
        for one in found
    }


def measure(folder: Path, name: str, dtype: str, number: int) -> Row:
    """One file in every batch size."""
    offline = OfflinePool.of(folder, dtype, work=FULL_WORK)
    honest = offline.honest()
    limit, sampling = FULL_WORK.max_new_tokens, honest.sampling
    asked = [Request(one.prompt, one.noise_key, limit) for one in honest.plan(work_of(number))]
    engine = ENGINES[name](dtype=dtype, max_batch=REFERENCE)
    engine.load(folder)
    reference = engine.generate(asked, sampling)
    found = {"tokens": 0, "differing": 0, "decode_seconds": 0.0, "prefill_seconds": 0.0}
    for batch in BATCHES:
        engine.max_batch = batch
        start = time.process_time()
        made = engine.generate(asked, sampling)
        if batch == TIMED:
            found["decode_seconds"] = time.process_time() - start
        _compare(found, reference, made)
    for batch in READS:
        engine.max_batch = batch
        start = time.process_time()
        with torch.inference_mode():
            read = list(engine.prefill([(one.prompt, own.tokens) for one, own in zip(asked, reference, strict=True)]))
        if batch == TIMED:
            found["prefill_seconds"] = time.process_time() - start
        proofs = build_many([one.hidden for one in read])
        again = []
        for request, own, prefilled, proven in zip(asked, reference, read, proofs, strict=True):
            count = len(own.tokens)
            chosen = choose(prefilled.logits, [request.noise_key] * count, list(range(count)), sampling.temperature)
            tokens, logprobs = tuple(map(int, chosen.tokens)), tuple(map(float, chosen.logprobs))
            again.append(Completion(tokens, logprobs, own.finish, tuple(proven)))
        _compare(found, reference, again)
    return found


def _compare(found: Row, reference: list[Completion], made: list[Completion]) -> None:
    """Count tokens, and those whose choice, ln p or proof is not the reference's."""
    for own, other in zip(reference, made, strict=True):
        found["tokens"] += len(own.tokens)
        if own == other:
            continue
        pairs = list(zip(own.tokens, own.logprobs, strict=True)), list(zip(other.tokens, other.logprobs, strict=True))
        same = sum(one == two for one, two in zip(*pairs, strict=False))
        found["differing"] += max(1, len(own.tokens) - same)


def _summary(made: dict[Which, Row], name: str, dtype: str) -> Row:
    own = {number: row for (engine, kind, number), row in made.items() if (engine, kind) == (name, dtype)}
    # Files of both engines alone: they were made one after the other, so on one machine under one load.
    both = [(row, made["plain", dtype, number]) for number, row in own.items() if ("plain", dtype, number) in made]
    out: Row = {"engine": name, "dtype": dtype, "files": len(own)}
    out |= {key: sum(row[key] for row in own.values()) for key in ("tokens", "differing")}
    out["made"] = out["tokens"] // (len(BATCHES) + len(READS))
    for key in ("decode_seconds", "prefill_seconds"):
        mine, theirs = (sum(row[key] for row in rows) for rows in (zip(*both, strict=True) if both else ((), ())))
        out[key.replace("seconds", "slowdown")] = float(f"{mine / theirs:.3g}") if theirs else None
    return out
