"""Bytes of proofs: hostile input is refused before any arithmetic."""

import contextlib
import random
import struct

import pytest

from protocol.errors import MusterError
from protocol.toploc.codec import PRIME, PROOF_BYTES, MalformedProof, parse_many, proof_count, serialise


def proof(modulus: int = PRIME, coefficients: list[int] | None = None) -> bytes:
    return struct.pack(">129H", modulus, *(coefficients or list(range(128))))


def test_round_trip() -> None:
    data = [proof(), proof(40000, [PRIME - 1] * 128)]
    parsed = parse_many(data)
    assert parsed[:, 0].tolist() == [PRIME, 40000]
    assert parsed[1, 1:].tolist() == [PRIME - 1] * 128
    assert serialise(parsed) == data


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "0 bytes"),
        (proof()[:-1], "257 bytes"),
        (proof() + b"\0", "259 bytes"),
        (proof(0), "modulus 0"),
        (bytes(PROOF_BYTES), "modulus 0"),
        (proof(PRIME + 1), "modulus 65498"),
        (proof(65535), "modulus 65535"),
        (proof(1), "modulus 1"),
        (proof(coefficients=[0] * 127 + [PRIME]), "coefficient"),
        (b"\xff" * PROOF_BYTES, "modulus 65535"),
    ],
)
def test_refused(data: bytes, said: str) -> None:
    with pytest.raises(MalformedProof, match=said) as caught:
        parse_many([data])
    assert isinstance(caught.value, MusterError)


@pytest.mark.parametrize(("tokens", "count"), [(1, 1), (31, 1), (32, 1), (33, 2), (64, 2), (65, 3)])
def test_count(tokens: int, count: int) -> None:
    assert proof_count(tokens) == count
    parse_many([proof()] * count, tokens)
    for wrong in (count - 1, count + 1):
        with pytest.raises(MalformedProof, match=f"{wrong} proofs for {tokens} tokens"):
            parse_many([proof()] * wrong, tokens)


def test_random_bytes_are_parsed_or_refused() -> None:
    source = random.Random(0)
    for _ in range(2000):
        data = source.randbytes(source.choice([PROOF_BYTES, PROOF_BYTES, source.randrange(600)]))
        with contextlib.suppress(MalformedProof):
            assert serialise(parse_many([data])) == [data]
