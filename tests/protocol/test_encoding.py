"""Hashes, addresses, words and amounts: equal to those of the Ethereum libraries, and nothing else is taken."""

import pytest
from eth_abi.abi import encode
from eth_utils.address import is_checksum_address, to_checksum_address
from eth_utils.crypto import keccak as theirs
from hypothesis import given
from hypothesis import strategies as st

from protocol.encoding import checksum_address, encode_words, keccak, parse_tokens, show_tokens, tagged_hash
from protocol.errors import ConfigError
from protocol.signing import checked_address


@given(st.one_of(st.binary(max_size=600), st.integers(0, 6).map(lambda blocks: bytes(136 * blocks))))
def test_hashes_equal_the_reference(data: bytes) -> None:
    assert keccak(data) == theirs(data)


def test_only_bytes_are_hashed_and_not_by_sha3() -> None:
    assert keccak(b"").hex() == "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"
    with pytest.raises(TypeError):
        keccak("text")  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [0, 19, 21, 32])
def test_an_address_has_twenty_bytes(size: int) -> None:
    with pytest.raises(ValueError, match=f"20 bytes, not {size}"):
        checksum_address(bytes(size))


@given(st.binary(min_size=20, max_size=20), st.lists(st.booleans(), min_size=40, max_size=40))
def test_an_address_is_taken_in_lower_case_or_with_its_checksum(raw: bytes, upper: list[bool]) -> None:
    assert checksum_address(raw) == to_checksum_address(raw)
    spelt = "0x" + "".join(one.upper() if up else one for one, up in zip(raw.hex(), upper, strict=True))
    for text in (spelt, spelt.lower(), to_checksum_address(raw), "0x" + raw.hex().upper()):
        if text == text.lower() or is_checksum_address(text):
            assert checked_address(text) == to_checksum_address(raw)
        else:
            with pytest.raises(ValueError, match="checksum"):
                checked_address(text)


ADDRESS = "0xAf78768e9F7B87bD358610246D323F36B62c97bD"
HASH = bytes(range(32))


def test_words_are_those_of_abi_encode() -> None:
    known = encode(["bytes32", "address", "uint256", "uint256", "uint256"], [HASH, ADDRESS, 0, 7, 2**256 - 1])
    assert encode_words(HASH, ADDRESS, 0, 7, 2**256 - 1) == known
    assert encode_words(ADDRESS.lower()) == encode(["address"], [ADDRESS])
    assert tagged_hash("a", 1) == keccak(keccak(b"a") + (1).to_bytes(32, "big"))


@pytest.mark.parametrize(
    "field", [b"", bytes(31), bytes(33), -1, 2**256, "", "0x12", ADDRESS[2:], ADDRESS + "0", "0x" + "g" * 40]
)
def test_what_is_no_word_is_refused(field: int | str | bytes) -> None:
    with pytest.raises(ValueError, match=r"a word has 32 bytes|not an address|not a number"):
        encode_words(field)


@pytest.mark.parametrize(
    ("text", "base_units"),
    [
        ("12", 12_000_000_000),
        ("12.5", 12_500_000_000),
        ("0.000000001", 1),
        (" 3.10 ", 3_100_000_000),
        ("0.1000000000000", 100_000_000),
        ("123456789012345678901.000000009", 123456789012345678901000000009),
    ],
)
def test_decimal_tokens_become_base_units(text: str, base_units: int) -> None:
    assert parse_tokens(text) == base_units


@pytest.mark.parametrize(
    "text", ["", "-1", "+1", "1e3", "0x10", "1,5", ".5", "5.", "1_000", "NaN", "٣", "0.0000000001"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_tokens(text)


@given(st.integers(0, 2**256 - 1))
def test_what_is_shown_can_be_typed(base_units: int) -> None:
    if base_units < 10**39:
        assert parse_tokens(show_tokens(base_units)) == base_units
    whole, _, fraction = show_tokens(base_units).partition(".")
    assert int(whole) * 10**9 + int(fraction.ljust(9, "0")) == base_units
    assert show_tokens(-base_units) == "-" * (base_units > 0) + show_tokens(base_units)
