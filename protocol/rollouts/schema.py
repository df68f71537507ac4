"""The rollout file's vocabulary: header, rollout, limits, and the checks every file must pass (docs/protocol.md, 6)."""

import math
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from eth_utils.address import is_checksum_address, to_checksum_address

from protocol.config import WorkConfig
from protocol.encoding import canonical_json, parse_json
from protocol.errors import MusterError
from protocol.identity import PoolId, WorkId
from protocol.seeds import Work

VERSION = 1
PROOF_BYTES = 258
CHUNK_TOKENS = 32
MAX_HEADER_BYTES = 4096
FIXED_ROW_BYTES = 52  # every number of a row, the four counts included
_LABEL = re.compile(r"[ -~]{1,64}")
_HASH = re.compile(r"[0-9a-f]{64}")
_NUMBERS = ("version", "chain_id", "pool", "step", "counter")
_LABELS = ("engine", "dtype", "device")
_ADDRESSES = ("pools", "node")
_HASHES = ("step_seed", "manifest")


class MalformedFile(MusterError):
    """A rollout file that no honest worker writes; the vote is `malformed`. The message names what is wrong."""

    def __init__(self, what: str) -> None:
        super().__init__(f"malformed rollout file: {what}", "write it with protocol.rollouts.file.write")
        self.what = what


@dataclass(frozen=True)
class RolloutHeader:
    """Which work a file is, and which arithmetic made it.

    Addresses are EIP-55; `engine`, `dtype` and `device` are printable ASCII, 64 at most. Raises MalformedFile on
    anything else.
    """

    work: Work
    engine: str
    dtype: str
    device: str
    version: int = VERSION

    def __post_init__(self) -> None:
        fields = self._fields()
        for name in _NUMBERS:
            if type(fields[name]) is not int or not 0 <= fields[name] < 2**63:
                raise MalformedFile(f"header `{name}` is not a number from 0 to 2^63 - 1")
        if self.version != VERSION:
            raise MalformedFile(f"header version {self.version}, this program reads version {VERSION}")
        for name in _HASHES:
            if not isinstance(fields[name], bytes) or len(fields[name]) != 32:
                raise MalformedFile(f"header `{name}` is not 32 bytes")
        for name in _LABELS:
            if not isinstance(fields[name], str) or not _LABEL.fullmatch(fields[name]):
                raise MalformedFile(f"header `{name}` is not 1 to 64 printable ASCII characters")
        object.__setattr__(self, "work", _work(fields | {name: _address(name, fields[name]) for name in _ADDRESSES}))

    def _fields(self) -> dict[str, Any]:
        labels = {name: getattr(self, name) for name in ("version", *_LABELS)}
        return self.work.id.flat() | {name: getattr(self.work, name) for name in _HASHES} | labels

    def canonical(self) -> bytes:
        """Canonical JSON; the two hashes as 64 hex digits without 0x."""
        fields = self._fields()
        return canonical_json(fields | {name: fields[name].hex() for name in _HASHES})

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """The header from hostile bytes; only the canonical form is accepted."""
        if len(data) > MAX_HEADER_BYTES:
            raise MalformedFile(f"header of {len(data)} bytes, at most {MAX_HEADER_BYTES}")
        try:
            fields: Any = parse_json(data)
        except ValueError:
            raise MalformedFile("header is not JSON") from None
        if not isinstance(fields, dict) or set(fields) != {*_NUMBERS, *_ADDRESSES, *_HASHES, *_LABELS}:
            raise MalformedFile("header has not exactly the fields of docs/protocol.md section 6")
        for name in _HASHES:
            if not isinstance(fields[name], str) or not _HASH.fullmatch(fields[name]):
                raise MalformedFile(f"header `{name}` is not 64 lower-case hex digits")
            fields[name] = bytes.fromhex(fields[name])
        header = cls(_work(fields), fields["engine"], fields["dtype"], fields["device"], fields["version"])
        if header.canonical() != data:
            raise MalformedFile("header is not canonical JSON")
        return header


def _work(fields: dict[str, Any]) -> Work:
    pool = PoolId(fields["chain_id"], fields["pools"], fields["pool"])
    work = WorkId(pool, fields["node"], fields["step"], fields["counter"])
    return Work(work, fields["step_seed"], fields["manifest"])


def _address(name: str, value: object) -> str:
    """EIP-55 form of an all-lower-case or checksummed address."""
    if isinstance(value, str) and re.fullmatch(r"0x[0-9a-fA-F]{40}", value):
        if value == value.lower():
            return str(to_checksum_address(value))
        if is_checksum_address(value):
            return value
    raise MalformedFile(f"header `{name}` is not an address")


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
        proofs = -(-self.max_new_tokens // CHUNK_TOKENS)
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
    """What is wrong with one row, or an empty string."""
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
    if not all(map(_finite32, numbers)):
        return "a number that is not finite in float32"
    expected = -(-output // CHUNK_TOKENS)
    if len(rollout.proofs) != expected:
        return f"{len(rollout.proofs)} proofs for {output} output tokens, expected {expected}"
    if any(len(proof) != PROOF_BYTES for proof in rollout.proofs):
        return f"a proof that has not {PROOF_BYTES} bytes"
    return ""


def _finite32(value: float) -> bool:
    try:
        return math.isfinite(struct.unpack(">f", struct.pack(">f", value))[0])
    except (OverflowError, struct.error, TypeError):
        return False
