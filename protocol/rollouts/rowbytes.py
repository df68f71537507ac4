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
    lists = _lists(data)
    prompt, output = (tuple(np.frombuffer(tokens, ">u4").tolist()) for tokens in lists[:2])
    logprobs = tuple(np.frombuffer(lists[2], ">f4").astype(float).tolist())
    proofs = tuple(lists[3][at : at + PROOF_BYTES] for at in range(0, len(lists[3]), PROOF_BYTES))
    return Rollout(
        slot, sample, seed, target, prompt, output, finish, logprobs, task_reward, length_penalty, reward, proofs
    )


def _lists(data: bytes) -> list[bytes]:
    """The bytes of a row's four lists."""
    at, found = _HEAD.size, []
    for size in (4, 4, 4, PROOF_BYTES):
        if len(data) - at < 4:
            raise MalformedFile("a row that ends before a count")
        (count,) = _COUNT.unpack_from(data, at)
        start, at = at + 4, at + 4 + count * size
        if at > len(data):
            raise MalformedFile("a row that ends before its lists")
        found.append(data[start:at])
    if at != len(data):
        raise MalformedFile("a row with bytes after its end")
    return found
