"""One interface to inference: generate with proofs (workers), prefill for verification (validators). Without torch."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from engines.torch_process import PACE
from protocol.errors import MusterError

if TYPE_CHECKING:
    import torch

FINISH_EOS = 0
FINISH_LENGTH = 1


@dataclass(frozen=True)
class EngineInfo:
    """Which arithmetic produced a file: `name` (transformers, vllm), its version, compute dtype and device."""

    name: str
    version: str
    dtype: str
    device: str


@dataclass(frozen=True)
class Sampling:
    """temperature > 0; a completion ends at the first of `eos_ids`. `proven`: whether proofs are wanted."""

    temperature: float
    eos_ids: tuple[int, ...]
    proven: bool = True


@dataclass(frozen=True)
class Request:
    """A prompt to complete; `noise_key` are the three 64-bit words of docs/reference/protocol.md section 3.

    A later turn of a rollout is a request whose prompt is everything before it. `sampled`: how many of the rollout's
    tokens were sampled already; `tail`: of the completion before. `goes_on`: this one's tail is wanted.
    """

    prompt: tuple[int, ...]
    noise_key: tuple[int, int, int]
    max_new_tokens: int
    sampled: int = 0
    tail: bytes = b""
    goes_on: bool = False


@dataclass(frozen=True)
class Completion:
    """`tokens` (EOS included) with `logprobs` = ln p(token) at the sampling temperature, and TOPLOC proofs of
    each chunk of 32 of the rollout's sampled tokens that has one of these. `tail`: of a request that goes on, the
    bfloat16 hidden states of the last chunk, where it is not full."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: int
    proofs: tuple[bytes, ...]
    tail: bytes = b""


@dataclass(frozen=True)
class Prefilled:
    """A verifier's own pass over prompt + output, rows P−1 … P+T−2: states [T, d] after the final norm, in the compute
    dtype. `project` makes logits [n, vocabulary] float32, before temperature, of any n rows of states. Those of a long
    text take more memory than a device has: call it with a few rows at a time."""

    states: "torch.Tensor"
    vocabulary: int
    project: "Callable[[torch.Tensor], torch.Tensor]"

    @property
    def hidden(self) -> "torch.Tensor":
        """The states in bfloat16, as proofs take them."""
        return self.states.bfloat16()

    @cached_property
    def logits(self) -> "torch.Tensor":
        """The logits of all rows of a short text."""
        return self.project(self.states)


class Generator(ABC):
    """Generation over one set of weights."""

    info: EngineInfo

    @abstractmethod
    def load(self, weights: Path) -> None:
        """Load (or hot-reload) a Hugging Face folder, while nothing is generated. Raises IntegrityError if the folder
        is not a usable model."""

    @abstractmethod
    def stream(self, requests: Sequence[Request], sampling: Sampling) -> Iterator[tuple[int, Completion]]:
        """Yield the place of each request and its completion, as they end. Noise depends on key, position and token
        alone, not on batching. Raises MusterError on a request that the model cannot take."""

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        """Return the same in request order."""
        done = dict(self.stream(requests, sampling))
        return [done[index] for index in range(len(requests))]


class Engine(Generator):
    """Generation and prefill over one set of weights. Requests join and leave one batch at any step; a completion is
    named by its ticket."""

    _tickets = 0

    @abstractmethod
    def prefill(self, sequences: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]) -> Iterator[Prefilled]:
        """Yield for each (prompt, output), in order, the rows that produced the output; a few are in memory at a time.
        Raises MusterError on a sequence that the model cannot take."""

    @abstractmethod
    def add(self, requests: Sequence[Request], sampling: Sampling) -> list[int]:
        """Queue requests and return their tickets. Raises MusterError, and queues none, if one cannot be taken."""

    @abstractmethod
    def step(self) -> list[tuple[int, Completion]]:
        """Compute one more token of every request in the batch; return those that ended. After a MusterError nothing
        is queued any more."""

    @abstractmethod
    def drop(self, tickets: Collection[int]) -> None:
        """Give up requests that did not end yet."""

    def new_tickets(self, count: int) -> list[int]:
        self._tickets += count
        return list(range(self._tickets - count, self._tickets))

    def stream(self, requests: Sequence[Request], sampling: Sampling) -> Iterator[tuple[int, Completion]]:
        index_of = {ticket: index for index, ticket in enumerate(self.add(requests, sampling))}
        try:
            with PACE.computing():
                while index_of:
                    for ticket, completion in self.step():
                        yield index_of.pop(ticket), completion
        finally:
            self.drop(index_of)


def check_sequence(
    prompt: tuple[int, ...], tokens: int, positions: int | None, vocabulary: int, output: tuple[int, ...] = ()
) -> None:
    """Raise MusterError unless a model of that many positions (None: unbounded) takes `prompt` and `tokens` more."""
    if not prompt or tokens < 1:
        raise MusterError("an empty prompt or no output", "give at least one token of each")
    if positions and len(prompt) + tokens > positions:
        raise MusterError(
            f"{len(prompt)} prompt and {tokens} output tokens exceed the model's {positions} positions",
            "lower max_new_tokens or the prompt's length",
        )
    if min(prompt) < 0 or max(prompt + output) >= vocabulary or min(output, default=0) < 0:
        raise MusterError(f"a token outside the vocabulary of {vocabulary}", "check the tokens first")
