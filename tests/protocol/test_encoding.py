"""Words as the contracts see them."""

import pytest
from eth_abi.abi import encode
from eth_utils.crypto import keccak

from protocol.encoding import encode_words, tagged_hash

ADDRESS = "0xAf78768e9F7B87bD358610246D323F36B62c97bD"
HASH = bytes(range(32))


def test_words_are_those_of_abi_encode() -> None:
    known = encode(["bytes32", "address", "uint256", "uint256", "uint256"], [HASH, ADDRESS, 0, 7, 2**256 - 1])
    assert encode_words(HASH, ADDRESS, 0, 7, 2**256 - 1) == known
    assert encode_words(ADDRESS.lower()) == encode(["address"], [ADDRESS])


def test_a_tag_keeps_hashes_apart() -> None:
    assert tagged_hash("a", 1) == keccak(keccak(text="a") + (1).to_bytes(32, "big"))
    assert tagged_hash("a", 1) != tagged_hash("b", 1)


@pytest.mark.parametrize(
    "field", [b"", bytes(31), bytes(33), -1, 2**256, "", "0x12", ADDRESS[2:], ADDRESS + "0", "0x" + "g" * 40]
)
def test_what_is_no_word_is_refused(field: int | str | bytes) -> None:
    with pytest.raises(ValueError, match=r"a word has 32 bytes|not an address|not a number"):
        encode_words(field)
