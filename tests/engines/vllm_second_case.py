"""Model runner V2 beside the transformers engine, with Triton's interpreter; prints a JSON object as its last line."""

import json
import logging
import sys
from pathlib import Path
from typing import Any

from engines.base import Request, Sampling
from tests.engines.interpreted import interpret_triton


def main(folder: Path) -> dict[str, Any]:
    """Joins, leaves, split prompts, two turns, prefill of what was made, other weights; scheduled asynchronously."""
    logging.disable(logging.WARNING)
    interpret_triton()
    from engines.hf import TransformersEngine
    from engines.vllm import VllmEngine
    from runtime.turns import joined
    from tests.engines.models import errors, save_tiny
    from tests.engines.vllm_case import same

    first, second = save_tiny(folder / "first"), save_tiny(folder / "second", seed=5)
    judge, engine = TransformersEngine(), VllmEngine(max_batch=3)
    judge.load(first)
    engine.load(first)
    core = engine._llm.llm_engine.engine_core.engine_core
    sampling, lengths = Sampling(1.0, ()), (3, 34, 1, 5, 7)
    asked = [Request((2 + n,) * (1 + 30 * n), (n, 1, 1), most, goes_on=True) for n, most in enumerate(lengths)]
    own, got = judge.generate(asked, sampling), engine.generate(asked, sampling)
    out: dict[str, Any] = {"runner": type(core.model_executor.driver_worker.worker.model_runner).__mro__[1].__module__}
    out |= {"ahead": core.batch_queue is not None, "same": same(own, got), "judged": errors(judge, asked, got)}
    out["own"] = errors(engine, asked, got)
    done = got[0]
    again = Request((*asked[0].prompt, *done.tokens, 9), (0, 1, 1), 31, len(done.tokens), done.tail)
    whole = joined(done, engine.generate([again], sampling)[0])
    out["turn"] = errors(judge, asked[:1], [whole], [((len(done.tokens), (9,)),)])
    judge.load(second)
    engine.load(second)
    out["reloaded"] = same(judge.generate(asked[3:], sampling), engine.generate(asked[3:], sampling))
    return out


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
