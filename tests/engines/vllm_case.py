"""One comparison of vLLM with transformers, as a program: prints a JSON object as its last line."""

import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engines.base import Completion, Engine, Request, Sampling
from engines.hf import TransformersEngine
from engines.vllm import VllmEngine
from protocol.errors import MusterError
from runtime.turns import joined
from tests.engines.models import errors, save_tiny
from tests.engines.test_hf import SAMPLING, requests


def same(one: list[Completion], other: list[Completion]) -> int:
    return sum(a.tokens == b.tokens and a.finish == b.finish for a, b in zip(one, other, strict=True))


def later_turns(engine: Engine, judge: Engine) -> dict[str, float]:
    """Rollouts of two turns that begin anywhere in their chunks, with three tokens put in between, in one batch."""
    put, limit, none = (9, 9, 9), 40, Sampling(1.0, ())
    asked = [Request((2 + n, 7), (n, 1, 1), 1 + n, goes_on=True) for n in range(12)]
    first = engine.generate(asked, none)
    again = [
        Request((*one.prompt, *done.tokens, *put), one.noise_key, limit, len(done.tokens), done.tail, goes_on=True)
        for one, done in zip(asked, first, strict=True)
    ]
    whole = [joined(one, two) for one, two in zip(first, engine.generate(again, none), strict=True)]
    found = errors(judge, asked, whole, [((len(turn.tokens), put),) for turn in first])
    tokens = sum(len(done.tokens) for done in whole)
    return {"turn_mismatches": found["mismatches"], "turn_gap": found["gap"], "turn_tokens": tokens}


def refusals(attempts: list[tuple[str, Callable[[], Any]]]) -> list[str]:
    """The telling words of each refusal, in order."""
    said = []
    for words, attempt in attempts:
        try:
            attempt()
        except MusterError as error:
            said.append(words if words in str(error) else str(error))
    return said


def main(name: str, folder: Path) -> dict[str, Any]:
    logging.disable(logging.WARNING)
    dtype = "bfloat16" if name == "bfloat16" else "float32"
    first, second = save_tiny(folder / "first"), save_tiny(folder / "second", seed=5)
    judge = TransformersEngine(dtype)
    judge.load(first)
    asked = requests(30)
    # Fewer seats than requests: they join as others leave.
    max_batch, cache = 20, None
    if name == "preemption":
        asked = [Request((2 + n,) * 30, (n, 1, 1), 120) for n in range(40)]
        max_batch, cache = 40, 4 << 20
    engine = VllmEngine(dtype, max_batch=max_batch, cache_bytes=cache)
    engine.load(first)
    sampling = Sampling(1.0, ()) if name == "preemption" else SAMPLING
    preempted = _count_preemptions(engine)
    own = judge.generate(asked, sampling)
    got = engine.generate(asked, sampling)
    out: dict[str, Any] = {"rollouts": len(asked), "same": same(own, got), **errors(judge, asked, got)}
    if name == "preemption":
        out["preemptions"] = len(preempted)
        return out
    out |= later_turns(engine, judge) if dtype == "float32" else {}
    judge.load(second)
    engine.load(second)
    later = engine.generate(asked, sampling)
    out["same_after_reload"] = same(judge.generate(asked, sampling), later)
    out["changed_by_reload"] = len(asked) - same(got, later)
    out["mismatches_after_reload"] = errors(judge, asked, later)["mismatches"]
    out["refused"] = refusals(
        [
            ("positions", lambda: engine.generate([Request((2,) * 250, (1, 2, 3), 10)], SAMPLING)),
            ("vocabulary", lambda: engine.generate([Request((300,), (1, 2, 3), 10)], SAMPLING)),
            ("another kind", lambda: engine.load(save_tiny(folder / "third", hidden=256))),
            ("empty prompt", lambda: engine.generate([Request((), (1, 2, 3), 10)], SAMPLING)),
        ]
    )
    return out


def _count_preemptions(engine: VllmEngine) -> list[Any]:
    """A list that grows with every preemption."""
    scheduler = engine._llm.llm_engine.engine_core.engine_core.scheduler
    inner, seen = scheduler._preempt_request, []

    def counted(request: Any, *rest: Any, **more: Any) -> Any:
        seen.append(request.request_id)
        return inner(request, *rest, **more)

    scheduler._preempt_request = counted
    return seen


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]))))
