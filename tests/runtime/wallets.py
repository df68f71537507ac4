"""Key files as other wallets write them."""

import json
from typing import Any

KeyFile = dict[str, Any]


def by_powershell(document: KeyFile) -> bytes:
    """A key file that went through a pipe of Windows: UTF-16 with a byte order mark; its address is null."""
    return json.dumps({**document, "address": None}).encode("utf-16")


def by_foundry(document: KeyFile) -> KeyFile:
    """A key file of `cast wallet new`: it names no address."""
    return {name: value for name, value in document.items() if name != "address"}


def by_ethers(document: KeyFile) -> KeyFile:
    """A key file of MyEtherWallet or ethers.js 5: `Crypto` in place of `crypto`."""
    return {"Crypto" if name == "crypto" else name: value for name, value in document.items()}
