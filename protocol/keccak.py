"""Keccak-256, and what Ethereum makes of it by itself: addresses.

Nearly everything in the protocol is hashed by it, and a signed request four times. The binding that the Ethereum
libraries choose by themselves takes six times as long for two hundred bytes, and gives the interpreter's lock up
thrice: beside a busy thread ten times as long again.
"""

from sha3 import keccak_256


def keccak(data: bytes) -> bytes:
    """The 32 bytes of Keccak-256 (not SHA3-256) of `data`."""
    digest: bytes = keccak_256(data).digest()
    return digest


def checksum_address(raw: bytes) -> str:
    """Twenty bytes as an address with its checksum (EIP-55)."""
    if len(raw) != 20:
        raise ValueError(f"an address has 20 bytes, not {len(raw)}")
    digits = raw.hex()
    marks = keccak(digits.encode()).hex()
    return "0x" + "".join([one.upper() if mark > "7" else one for one, mark in zip(digits, marks, strict=False)])
