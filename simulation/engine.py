"""An engine without a model: a completion and its proofs follow from weights, prompt and noise by a hash. So it is
cheap, anybody with the weights can recompute it, and without them or with less work nobody makes what a verifier
accepts.
"""

import hashlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from engines.base import FINISH_EOS, FINISH_LENGTH, Completion, EngineInfo, Generator, Request, Sampling
from protocol.errors import IntegrityError
from protocol.rollout_file.rows import Rollout
from protocol.seeds import noise_key
from protocol.toploc.codec import CHUNK
from protocol.verdict import Code, Finding
from validator.judging.checks import CheckContext, RowMeasurements

WEIGHTS = "model.safetensors"
_SHORTEST = 8  # tokens: proofs of shorter chunks are not compared
_MODULUS, _COEFFICIENTS = 65497, 128


class HashEngine(Generator):
    """Completes by hashing; judges use `measure` in place of a prefill. `seconds` of the clock go by for each token
    that it generates."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.info = EngineInfo("hf", "1", "float32", "cpu")
        self.seconds = seconds
        self._weights = b""

    def load(self, weights: Path) -> None:
        try:
            self._weights = hashlib.sha256((weights / WEIGHTS).read_bytes()).digest()
        except OSError as error:
            raise IntegrityError(f"{weights} holds no weights ({error})", "fetch them again") from None

    def stream(self, requests: Sequence[Request], sampling: Sampling) -> Iterator[tuple[int, Completion]]:
        for number, request in enumerate(requests):
            completion = self.completed(request.prompt, request.noise_key, request.max_new_tokens, sampling.eos_ids)
            if self.seconds:
                time.sleep(self.seconds * len(completion.tokens))
            yield number, completion

    def completed(
        self, prompt: tuple[int, ...], key: tuple[int, int, int], most: int, eos_ids: tuple[int, ...]
    ) -> Completion:
        random = Random(hashlib.sha256(repr((self._weights, prompt, key)).encode()).digest())
        ends = random.random() < 0.5 and most > _SHORTEST
        length = random.randrange(_SHORTEST, most) if ends else most
        tokens = tuple(random.randrange(97, 123) for _ in range(length - 1)) + ((eos_ids[0],) if ends else (65,))
        proofs = tuple(forged_proof(random) for _ in range(-(-length // CHUNK)))
        logprobs = tuple(-random.random() * 8 for _ in tokens)
        return Completion(tokens, logprobs, FINISH_EOS if ends else FINISH_LENGTH, proofs)


def forged_proof(random: Random) -> bytes:
    """Return a well-formed proof of nothing."""
    values = (_MODULUS, *(random.randrange(_MODULUS) for _ in range(_COEFFICIENTS)))
    return b"".join(value.to_bytes(2, "big") for value in values)


def measure(context: CheckContext, engine: HashEngine) -> tuple[RowMeasurements, ...]:
    """In the place of `validator.judging.measurements.measure`: audited rows are recomputed, and far off if they
    differ."""
    measured = []
    for number in context.audited:
        row = context.rollouts[number]
        key, most = noise_key(context.facts.work, row.slot, row.sample), context.config.work.max_new_tokens
        honest = engine.completed(row.prompt_tokens, key, most, context.environment.eos_ids)
        measured.append(_measured(number, row, honest))
    return tuple(measured)


def _measured(number: int, row: Rollout, honest: Completion) -> RowMeasurements:
    same = (row.output_tokens, row.proofs) == (honest.tokens, honest.proofs)
    chunks, zeros = len(row.proofs), (0.0,) * len(row.output_tokens)
    mismatches = (0 if same else 100,) * chunks
    ended = 0.9 if row.finish == FINISH_EOS else None
    mantissas = (0.0 if same else 100.0,) * chunks
    return RowMeasurements(number, mismatches, mantissas, zeros, row.logprobs, row.logprobs, 0.0, 0.0, ended)


def evidence(*_: object) -> Finding:
    """In the place of `validator.judging.measurements.evidence`, which needs activations."""
    return Finding("evidence", Code.ACCEPT, {})
