"""Two processes with half of the model each, as a program: prints a JSON object as its last line.

vLLM starts each as a fresh Python that imports this file: it imports nothing heavy by itself.
"""

import json
import logging
import sys
from pathlib import Path
from typing import Any


def main(folder: Path) -> dict[str, Any]:
    """Tokens, proofs and prefill of two kinds of weights beside those of the transformers engine."""
    from engines.hf import TransformersEngine
    from engines.vllm import VllmEngine
    from tests.engines.models import errors, pairs_of, save_tiny
    from tests.engines.test_hf import SAMPLING, requests
    from tests.engines.vllm_case import same
    from tests.engines.vllm_prefill_case import distance

    logging.disable(logging.WARNING)
    first, second = save_tiny(folder / "first"), save_tiny(folder / "second", seed=5)
    other, engine = TransformersEngine(), VllmEngine(max_batch=16, tensor_parallel_size=2)
    asked, out = requests(10), {}
    for name, weights in (("first", first), ("second", second)):
        other.load(weights)
        engine.load(weights)
        theirs, own = other.generate(asked, SAMPLING), engine.generate(asked, SAMPLING)
        out[name] = {
            "same": same(theirs, own),
            "distance": distance(engine, other, pairs_of(asked, theirs)),
            "theirs": errors(engine, asked, theirs),
            "own": errors(other, asked, own),
        }
    engine._llm.llm_engine.engine_core.shutdown()
    return out


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[2]))))
