"""Canonical bytes of one rollout, the content of a Merkle leaf (docs/protocol.md, section 6): all big-endian."""

import struct
from operator import attrgetter

import numpy as np

from protocol.proofs.codec import PROOF_BYTES
from protocol.rollouts.schema import MalformedFile, Rollout

_HEAD = struct.Struct(">IIQIIfff")
_NUMBERS = attrgetter(
    "slot", "sample", "problem_seed", "target_length", "finish", "task_reward", "length_penalty", "reward"
)
_COUNT = struct.Struct(">I")


def encode_row(rollout: Rollout) -> bytes:
    """u32 slot, sample; u64 problem_seed; u32 target_length, finish; f32 task_reward, length_penalty, reward; then
    u32 count and elements of prompt_tokens (u32), output_tokens (u32), logprobs (f32), proofs (258 bytes)."""
    parts = [_HEAD.pack(*_NUMBERS(rollout))]
    for values, kind in ((rollout.prompt_tokens, ">u4"), (rollout.output_tokens, ">u4"), (rollout.logprobs, ">f4")):
        parts += [_COUNT.pack(len(values)), np.asarray(values, kind).tobytes()]
    return b"".join((*parts, _COUNT.pack(len(rollout.proofs)), *rollout.proofs))


def decode_row(data: bytes) -> Rollout:
    """Inverse of `encode_row`, total on hostile bytes. Raises MalformedFile."""
    if len(data) < _HEAD.size:
        raise MalformedFile(f"a row of {len(data)} bytes")
    slot, sample, seed, target, finish, task_reward, length_penalty, reward = _HEAD.unpack_from(data)
    cursor = _Cursor(data, _HEAD.size)
    prompt = tuple(np.frombuffer(cursor.take(4), ">u4").tolist())
    output = tuple(np.frombuffer(cursor.take(4), ">u4").tolist())
    logprobs = tuple(np.frombuffer(cursor.take(4), ">f4").astype(float).tolist())
    raw = cursor.take(PROOF_BYTES)
    proofs = tuple(raw[i : i + PROOF_BYTES] for i in range(0, len(raw), PROOF_BYTES))
    cursor.end()
    return Rollout(
        slot, sample, seed, target, prompt, output, finish, logprobs, task_reward, length_penalty, reward, proofs
    )


class _Cursor:
    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def take(self, size: int) -> bytes:
        """The bytes of the next list, whose elements have `size` bytes."""
        if len(self.data) - self.at < 4:
            raise MalformedFile("a row that ends before a count")
        (count,) = _COUNT.unpack_from(self.data, self.at)
        start, self.at = self.at + 4, self.at + 4 + count * size
        if self.at > len(self.data):
            raise MalformedFile("a row that ends before its lists")
        return self.data[start : self.at]

    def end(self) -> None:
        if self.at != len(self.data):
            raise MalformedFile("a row with bytes after its end")
