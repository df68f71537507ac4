"""What a rollout file holds: header, rollouts, limits, row bytes and commitment (docs/reference/protocol.md, 6)."""

import hashlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, Any, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from protocol.api.base import Address, Hex64
from protocol.config import WorkConfig
from protocol.encoding import canonical_json
from protocol.errors import MusterError, first_problem
from protocol.identity import PoolId, WorkId
from protocol.rollout_file import merkle
from protocol.seeds import Work
from protocol.signing import open_canonical
from protocol.toploc.codec import PROOF_BYTES, proof_count

VERSION = 1
MAX_HEADER_BYTES = 4096
FIXED_ROW_BYTES = 52  # every number of a row, the four counts included
REQUEST = struct.Struct(">IQ")  # bytes of the limits' JSON, bytes of the file
ANSWER = struct.Struct(">iQ")  # wait status of the child, bytes of the answer
OK, REFUSED, CONFINED = 0, 1, 2
_HEAD = struct.Struct(">IIQIIfff")
_NUMBERS = attrgetter(
    "slot", "sample", "problem_seed", "target_length", "finish", "task_reward", "length_penalty", "reward"
)
_COUNT = struct.Struct(">I")
Tokens = tuple[int, ...]
Inserted = tuple[tuple[int, Tokens], ...]
"""(how many sampled tokens come before, the tokens that are put there), ascending."""
Number = Annotated[int, Field(ge=0, lt=1 << 63)]
Label = Annotated[str, Field(pattern=r"^[ -~]{1,64}$")]


class MalformedFile(MusterError):
    """A rollout file that no honest worker writes; the vote is `malformed`. The message names what is wrong."""

    def __init__(self, what: str) -> None:
        super().__init__(f"malformed rollout file: {what}", "write it with protocol.rollout_file.file.write")
        self.what = what


@dataclass(frozen=True)
class RolloutHeader:
    """Which work a file is, and which arithmetic made it. Addresses are EIP-55; `engine`, `dtype` and `device` are
    printable ASCII, 64 at most. Raises MalformedFile on anything else."""

    work: Work
    engine: str
    dtype: str
    device: str
    version: int = VERSION

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "work", _HeaderFields.model_validate(self._fields()).work())
        except ValidationError as error:
            field, problem = first_problem(error.errors())
            raise MalformedFile(f"header `{field}`: {problem}") from None

    def _fields(self) -> dict[str, Any]:
        seeds = {"step_seed": self.work.step_seed.hex(), "manifest": self.work.manifest.hex()}
        labels = {"engine": self.engine, "dtype": self.dtype, "device": self.device}
        return {**self.work.id.flat(), **seeds, **labels, "version": self.version}

    def canonical(self) -> bytes:
        """Encode canonical JSON; the two hashes as 64 hex digits without 0x."""
        return canonical_json(self._fields())

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Parse the header from hostile bytes; only the canonical form is accepted."""
        fields = open_canonical(data, _HeaderFields, MAX_HEADER_BYTES, "a header", MalformedFile)
        return cls(fields.work(), fields.engine, fields.dtype, fields.device)


class _HeaderFields(BaseModel):
    """The header as it is written: one flat object."""

    model_config = ConfigDict(extra="forbid", strict=True)

    version: Annotated[int, Field(ge=VERSION, le=VERSION)]
    chain_id: Number
    pools: Address
    pool: Number
    node: Address
    step: Number
    counter: Number
    step_seed: Hex64
    manifest: Hex64
    engine: Label
    dtype: Label
    device: Label

    def work(self) -> Work:
        work = WorkId(PoolId(self.chain_id, self.pools, self.pool), self.node, self.step, self.counter)
        return Work(work, bytes.fromhex(self.step_seed), bytes.fromhex(self.manifest))


@dataclass(frozen=True, slots=True)
class Rollout:
    """One completion. Numbers are rounded to float32 when written; `proofs` are ⌈T/32⌉ strings of 258 bytes."""

    slot: int
    sample: int
    problem_seed: int
    target_length: int
    prompt_tokens: tuple[int, ...]
    output_tokens: tuple[int, ...]
    finish: int
    logprobs: tuple[float, ...]
    task_reward: float
    length_penalty: float
    reward: float
    proofs: tuple[bytes, ...]


@dataclass(frozen=True)
class Limits:
    """What a pool allows in one file. Sizes in bytes, time in CPU seconds of the sandboxed reader."""

    problems: int
    samples: int
    max_prompt_tokens: int
    max_new_tokens: int
    cpu_seconds: int = 60

    @classmethod
    def of(cls, work: WorkConfig) -> Self:
        return cls(work.problems_per_file, work.samples_per_problem, work.max_prompt_tokens, work.max_new_tokens)

    @property
    def rows(self) -> int:
        return self.problems * self.samples

    @property
    def row_bytes(self) -> int:
        """Most bytes one row's canonical form takes."""
        proofs = proof_count(self.max_new_tokens)
        return FIXED_ROW_BYTES + 4 * self.max_prompt_tokens + 8 * self.max_new_tokens + PROOF_BYTES * proofs

    @property
    def payload_bytes(self) -> int:
        return self.rows * self.row_bytes

    @property
    def file_bytes(self) -> int:
        """Largest file looked at: the uncompressed payload and some room for Parquet's own bytes."""
        return self.payload_bytes + self.payload_bytes // 4 + 65536

    @property
    def memory_bytes(self) -> int:
        """Address space the sandboxed reader may take on top of what it has when it starts on a file."""
        return 8 * self.payload_bytes + (192 << 20)


def check_rollouts(rollouts: Sequence[Rollout], limits: Limits | None = None) -> None:
    """Raise MalformedFile unless the rows are sorted, complete, finite and consistent (and within `limits`)."""
    if limits is not None and len(rollouts) != limits.rows:
        raise MalformedFile(f"{len(rollouts)} rows instead of {limits.rows}")
    if not rollouts:
        raise MalformedFile("no rows")
    samples = limits.samples if limits is not None else 1 + max(rollout.sample for rollout in rollouts)
    for number, rollout in enumerate(rollouts):
        if (rollout.slot, rollout.sample) != divmod(number, samples):
            raise MalformedFile(
                f"row {number} is (slot {rollout.slot}, sample {rollout.sample}): missing or out of order"
            )
        wrong = _wrong(rollout, limits)
        if wrong:
            raise MalformedFile(f"row {number}: {wrong}")


def _wrong(rollout: Rollout, limits: Limits | None) -> str:
    prompt, output = len(rollout.prompt_tokens), len(rollout.output_tokens)
    if not prompt or not output:
        return "an empty prompt or output"
    if limits is not None and (prompt > limits.max_prompt_tokens or output > limits.max_new_tokens):
        return f"{prompt} prompt and {output} output tokens, more than the pool allows"
    if not 0 <= rollout.problem_seed < 2**64 or not 0 <= rollout.target_length < 2**31:
        return "a problem seed or target length out of range"
    if rollout.finish not in (0, 1):
        return f"finish {rollout.finish} is neither 0 nor 1"
    for name, tokens in (("prompt", rollout.prompt_tokens), ("output", rollout.output_tokens)):
        if min(tokens) < 0 or max(tokens) >= 2**31:
            return f"a {name} token out of range"
    if len(rollout.logprobs) != output:
        return f"{len(rollout.logprobs)} log-probs for {output} output tokens"
    numbers = (*rollout.logprobs, rollout.task_reward, rollout.length_penalty, rollout.reward)
    with np.errstate(over="ignore"):
        if not np.isfinite(np.array(numbers, dtype=np.float32)).all():
            return "a number that is not finite in float32"
    expected = proof_count(output)
    if len(rollout.proofs) != expected:
        return f"{len(rollout.proofs)} proofs for {output} output tokens, expected {expected}"
    if any(len(proof) != PROOF_BYTES for proof in rollout.proofs):
        return f"a proof that does not have {PROOF_BYTES} bytes"
    return ""


# Row bytes: the content of a Merkle leaf


def encode_row(rollout: Rollout) -> bytes:
    """Encode u32 slot, sample; u64 problem_seed; u32 target_length, finish; f32 task_reward, length_penalty, reward;
    then u32 count and elements of prompt_tokens (u32), output_tokens (u32), logprobs (f32), proofs (258 bytes)."""
    parts = [_HEAD.pack(*_NUMBERS(rollout))]
    for values, kind in ((rollout.prompt_tokens, ">u4"), (rollout.output_tokens, ">u4"), (rollout.logprobs, ">f4")):
        parts += [_COUNT.pack(len(values)), np.asarray(values, kind).tobytes()]
    return b"".join((*parts, _COUNT.pack(len(rollout.proofs)), *rollout.proofs))


def decode_row(data: bytes) -> Rollout:
    """Decode what `encode_row` wrote. Raises MalformedFile for any other bytes."""
    if len(data) < _HEAD.size:
        raise MalformedFile(f"a row of {len(data)} bytes")
    slot, sample, seed, target, finish, task_reward, length_penalty, reward = _HEAD.unpack_from(data)
    lists = _lists(data)
    prompt, output = (tuple(np.frombuffer(tokens, ">u4").tolist()) for tokens in lists[:2])
    logprobs = tuple(np.frombuffer(lists[2], ">f4").astype(float).tolist())
    proofs = tuple(lists[3][at : at + PROOF_BYTES] for at in range(0, len(lists[3]), PROOF_BYTES))
    return Rollout(
        slot, sample, seed, target, prompt, output, finish, logprobs, task_reward, length_penalty, reward, proofs
    )


def _lists(data: bytes) -> list[bytes]:
    at, proofs = _HEAD.size, []
    for size in (4, 4, 4, PROOF_BYTES):
        if len(data) - at < 4:
            raise MalformedFile("a row that ends before a count")
        (count,) = _COUNT.unpack_from(data, at)
        start, at = at + 4, at + 4 + count * size
        if at > len(data):
            raise MalformedFile("a row that ends before its lists")
        proofs.append(data[start:at])
    if at != len(data):
        raise MalformedFile("a row with bytes after its end")
    return proofs


# Commitments


@dataclass(frozen=True)
class Commitment:
    """`sha256` and `root` have 32 bytes; `units` = sum of output tokens, EOS included."""

    sha256: bytes
    root: bytes
    units: int
    rows: int


def leaves(rollouts: Sequence[Rollout]) -> list[bytes]:
    """Return the Merkle leaves of a file's rows, in row order."""
    return [merkle.leaf(encode_row(rollout)) for rollout in rollouts]


def commit(data: bytes, rollouts: Sequence[Rollout]) -> Commitment:
    """Compute the commitment of a file's bytes and its (non-empty) rows."""
    units = sum(len(rollout.output_tokens) for rollout in rollouts)
    return Commitment(hashlib.sha256(data).digest(), merkle.root(leaves(rollouts)), units, len(rollouts))


def inclusion(rollouts: Sequence[Rollout], row: int) -> tuple[bytes, list[bytes]]:
    """Return row bytes and Merkle siblings of one row: what a dispute or a canary opening shows the contract."""
    return encode_row(rollouts[row]), merkle.proof(leaves(rollouts), row)


# Rollouts of several turns


@dataclass(frozen=True)
class Transcript:
    """What follows a prompt. `turns`: the sampled tokens of each, with the EOS that ended it. `replies[k]` stands
    between turn k and turn k + 1. `due`: what goes after the last turn before another one is sampled; None where none
    may follow. `excess`: sampled tokens after the end, which no honest worker hands in."""

    turns: tuple[Tokens, ...]
    replies: tuple[Tokens, ...] = ()
    due: Tokens | None = None
    excess: int = 0

    @property
    def sampled(self) -> Tokens:
        return tuple(token for turn in self.turns for token in turn)

    @property
    def inserted(self) -> Inserted:
        out, before = [], 0
        for turn, reply in zip(self.turns, self.replies, strict=False):
            before += len(turn)
            out.append((before, reply))
        return tuple(out)


def interleaved(sampled: Tokens, inserted: Inserted) -> Tokens:
    """Return the whole sequence after the prompt."""
    out: list[int] = []
    start = 0
    for before, tokens in inserted:
        out += sampled[start:before]
        out += tokens
        start = before
    return (*out, *sampled[start:])


def sampled_positions(sampled: int, inserted: Inserted) -> list[int]:
    """Return where each of the sampled tokens stands in that sequence, ascending."""
    out: list[int] = []
    start = shift = 0
    for before, tokens in inserted:
        out += range(start + shift, before + shift)
        start, shift = before, shift + len(tokens)
    return [*out, *range(start + shift, sampled + shift)]


def context_of(prompt: Tokens, transcript: Transcript) -> Sequence[int]:
    """Return everything before the next turn's first token."""
    return (*prompt, *interleaved(transcript.sampled, transcript.inserted), *(transcript.due or ()))


# Frames between a process that reads a file and its sandboxed reader: lengths first, no pickles


def pack_body(header: bytes, rows: Sequence[bytes]) -> bytes:
    """Pack header and rows, each after its u32 length."""
    return b"".join(_COUNT.pack(len(part)) + part for part in (header, *rows))


def unpack_body(body: bytes) -> Iterator[bytes]:
    """Unpack what `pack_body` wrote, or the file that has taken over its writer. Raises MalformedFile."""
    at = 0
    while at < len(body):
        size = int.from_bytes(body[at : at + 4], "big")
        at += 4 + size
        if at > len(body):
            raise MalformedFile("the reader's answer is cut short")
        yield body[at - size : at]
