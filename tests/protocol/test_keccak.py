"""Our hash and our addresses against those of the Ethereum libraries."""

import pytest
from eth_utils.address import is_checksum_address, to_checksum_address
from eth_utils.crypto import keccak as theirs
from hypothesis import given
from hypothesis import strategies as st

from protocol.encoding import checksum_address, keccak
from protocol.signing import checked_address


def test_it_is_keccak_and_not_sha3() -> None:
    assert keccak(b"").hex() == "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"


@given(st.one_of(st.binary(max_size=600), st.integers(0, 6).map(lambda blocks: bytes(136 * blocks))))
def test_hashes_equal_the_reference(data: bytes) -> None:
    assert keccak(data) == theirs(data)


def test_only_bytes_are_hashed() -> None:
    with pytest.raises(TypeError):
        keccak("text")  # type: ignore[arg-type]


@given(st.binary(min_size=20, max_size=20))
def test_checksums_equal_the_reference(raw: bytes) -> None:
    assert checksum_address(raw) == to_checksum_address(raw)


@pytest.mark.parametrize("size", [0, 19, 21, 32])
def test_an_address_has_twenty_bytes(size: int) -> None:
    with pytest.raises(ValueError, match=f"20 bytes, not {size}"):
        checksum_address(bytes(size))


@given(st.binary(min_size=20, max_size=20), st.lists(st.booleans(), min_size=40, max_size=40))
def test_an_address_is_taken_in_lower_case_or_with_its_checksum(raw: bytes, upper: list[bool]) -> None:
    spelt = "0x" + "".join(one.upper() if up else one for one, up in zip(raw.hex(), upper, strict=True))
    for text in (spelt, spelt.lower(), to_checksum_address(raw), "0x" + raw.hex().upper()):
        if text == text.lower() or is_checksum_address(text):
            assert checked_address(text) == to_checksum_address(raw)
        else:
            with pytest.raises(ValueError, match="checksum"):
                checked_address(text)
