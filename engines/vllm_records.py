"""What requests tell the process that runs vLLM's model, and completions in the making there.

A model runner posts each step without waiting for the device; a thread of its own waits until the step's figures have
arrived, puts each row into its completion, and proves the chunks that are full. A completion is named by its ticket and
a row by its place among the completion's tokens. A row that comes again replaces the first: vLLM computes a token again
when it has preempted the request. It also computes one token too many of a request that just ended.
"""

import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import torch

from engines.decoding import from_bytes, to_bytes
from protocol.errors import MusterError
from protocol.sampling.noise import check_finite
from protocol.toploc.codec import CHUNK
from protocol.toploc.proofs import build_many

N = TypeVar("N")
_STEPS = 64  # that wait for the thread, before the runner waits for it
_KEPT = 2 * CHUNK  # rows of a completion: of the chunk under way, and of the one before, which may come again
# Of a request that is sampled: ticket, noise key, temperature, tokens of the rollout sampled before, and their tail.
NOISE = "muster_noise"
# A request that is only prefilled: its ticket, and how many of its last rows are wanted.
PREFILL = "muster_prefill"


class NoiseRequest(NamedTuple):
    """A completion. `sampled`: tokens of the rollout before it; `tail`: hidden states of their last chunk."""

    ticket: int
    key: tuple[int, int, int]
    temperature: float
    sampled: int
    tail: bytes

    def extra(self) -> dict[str, Any]:
        return {NOISE: [self.ticket, list(self.key), self.temperature, self.sampled, self.tail]}


class PrefillRequest(NamedTuple):
    """A prompt whose last `wanted` rows are looked at."""

    ticket: int
    wanted: int

    def extra(self) -> dict[str, Any]:
        return {PREFILL: [self.ticket, self.wanted]}


def request_of(params: Any) -> NoiseRequest | PrefillRequest | None:
    """Return ours, from vLLM's sampling parameters; None for a request that vLLM made for itself."""
    extra = (params.extra_args or {}) if params else {}
    if NOISE in extra:
        ticket, (k0, k1, k2), temperature, sampled, tail = extra[NOISE]
        return NoiseRequest(ticket, (k0, k1, k2), temperature, sampled, tail)
    return PrefillRequest(*extra[PREFILL]) if PREFILL in extra else None


def processor_of(runner: Any, processors: Any, kind: type[N]) -> N:
    """Return vLLM's logits processor of a kind. Raises MusterError if this vLLM lacks what capturing needs."""
    processor = next((processor for processor in processors if isinstance(processor, kind)), None)
    if processor is None or not hasattr(runner, "sample_tokens") or not hasattr(runner, "execute_model_state"):
        raise MusterError("this version of vLLM hides its hidden states", "install the version in the lock file")
    return processor


class Sampled(NamedTuple):
    """What one step sampled. `where`: of each row (ticket, place), None for a row that is nobody's. On the CPU, once
    `arrived` (a CUDA event) is over: rows [B, d] bfloat16, tokens int64 [B], logprobs float64 [B]."""

    where: list[tuple[int, int] | None]
    rows: torch.Tensor
    tokens: torch.Tensor
    logprobs: torch.Tensor
    arrived: Any = None


class Record(NamedTuple):
    """A finished completion; `tail` as in engines.base."""

    tokens: list[int]
    logprobs: list[float]
    proofs: list[bytes]
    tail: bytes


@dataclass
class _Making:
    """`before`: rows of the first chunk that are an earlier turn's. `rows` [_KEPT, d]: the newest."""

    before: int
    rows: torch.Tensor
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    proofs: list[bytes] = field(default_factory=list)

    def put(self, position: int, row: torch.Tensor, token: int, logprob: float) -> int | None:
        """Take a row. Return the number of the chunk that it fills, if it does."""
        if position > len(self.tokens):
            raise MusterError("vLLM left out a token", "report this version; use engine transformers")
        if not self.rows.shape[1]:
            self.rows = torch.empty(_KEPT, len(row), dtype=torch.bfloat16)
        self.tokens[position:], self.logprobs[position:] = [token], [logprob]
        at = self.before + position
        self.rows[at % _KEPT] = row
        del self.proofs[at // CHUNK :]
        return at // CHUNK if at % CHUNK == CHUNK - 1 else None

    def chunk(self, number: int, size: int = CHUNK) -> torch.Tensor:
        start = number * CHUNK % _KEPT
        return self.rows[start : start + size]


class Records:
    """Methods are called by the runner's thread alone."""

    def __init__(self) -> None:
        self._making: dict[int, _Making] = {}
        self._steps: queue.Queue[Sampled] = queue.Queue(_STEPS)
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self._making)

    def begin(self, request: NoiseRequest) -> None:
        """Go on from the tail of the turn before, once."""
        if request.ticket in self._making:
            return
        with torch.inference_mode(False):  # or the thread could not write to it
            rows = from_bytes(request.tail, request.sampled)
            kept = torch.empty(_KEPT, rows.shape[1], dtype=torch.bfloat16)
            kept[: len(rows)] = rows
        self._making[request.ticket] = _Making(len(rows), kept)

    def post(self, step: Sampled) -> None:
        """Hand over a step. Raises MusterError for an earlier one that could not be taken."""
        if self._failure is not None:
            raise self._failure
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="proofs", daemon=True)
            self._thread.start()
        self._steps.put(step)

    def collect(self, asked: Sequence[tuple[int, int, bool]]) -> list[Record]:
        """Return and forget completions of (ticket, tokens, whether the tail is wanted). Raises MusterError."""
        self._steps.join()
        if self._failure is not None:
            raise self._failure
        done, tails = [], []
        for ticket, count, wanted in asked:
            answer = self._making.pop(ticket)
            if len(answer.tokens) < count:
                raise MusterError("vLLM sampled more than was seen", "report this version; use engine transformers")
            full, rest = divmod(answer.before + count, CHUNK)
            tail = answer.chunk(full, rest)
            del answer.proofs[full:]
            tails += [(answer.proofs, tail)] if rest else []
            done.append(
                Record(answer.tokens[:count], answer.logprobs[:count], answer.proofs, to_bytes(tail) if wanted else b"")
            )
        for (proofs, _), last in zip(tails, build_many([tail for _, tail in tails]), strict=True):
            proofs += last
        return done

    def forget(self, tickets: Sequence[int]) -> None:
        """Drop what is kept of these requests, finished or not, and the failure of a step."""
        self._steps.join()
        for ticket in tickets:
            self._making.pop(ticket, None)
        self._failure = None

    def _run(self) -> None:
        while True:
            step = self._steps.get()
            try:
                if self._failure is None:
                    self._take(step)
            except BaseException as error:  # the runner raises it; a thread that ends would keep it waiting for ever
                self._failure = error
            finally:
                self._steps.task_done()

    def _take(self, step: Sampled) -> None:
        if step.arrived is not None:
            step.arrived.synchronize()
        check_finite(step.logprobs.numpy())
        full = []
        tokens, logprobs = step.tokens.tolist(), step.logprobs.tolist()
        for where, row, token, logprob in zip(step.where, step.rows, tokens, logprobs, strict=True):
            # A request that was aborted may have steps under way.
            if where is not None and (answer := self._making.get(where[0])) is not None:
                number = answer.put(where[1], row, token, logprob)
                full += [(answer, number)] if number is not None else []
        proven = build_many([answer.chunk(number) for answer, number in full])
        for (answer, _), proofs in zip(full, proven, strict=True):
            answer.proofs += proofs
