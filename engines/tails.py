"""Hidden states of a chunk that is not full, as bytes: what a later turn's proof goes on from."""

import torch

from protocol.toploc.codec import CHUNK


def to_bytes(rows: torch.Tensor) -> bytes:
    """rows: [n, d] bfloat16."""
    return rows.cpu().contiguous().view(torch.int16).numpy().tobytes()


def from_bytes(tail: bytes, sampled: int) -> torch.Tensor:
    """[sampled mod 32, d] bfloat16, on the CPU. Raises ValueError for bytes that are no such rows."""
    count = sampled % CHUNK
    if bool(tail) != bool(count) or (count and len(tail) % (2 * count)):
        raise ValueError(f"{len(tail)} bytes are not the hidden states of {count} tokens")
    if not count:
        return torch.empty(0, 0, dtype=torch.bfloat16)
    return torch.frombuffer(bytearray(tail), dtype=torch.int16).view(torch.bfloat16).reshape(count, -1)
