"""Ethereum accounts: the one place that imports eth_account and eth_keyfile.

Both import py_ecc, which raises the interpreter's recursion limit to 100,000. With that limit a runaway recursion
overflows the C stack and the process dies of SIGSEGV instead of raising RecursionError, so the limit is restored here.
Import these names from this module only; ruff refuses other imports of these packages.
"""

import sys

_limit = sys.getrecursionlimit()
from eth_account import Account  # noqa: E402
from eth_account.signers.local import LocalAccount  # noqa: E402
from eth_keyfile.keyfile import create_keyfile_json, decode_keyfile_json  # noqa: E402

sys.setrecursionlimit(_limit)

__all__ = ["Account", "LocalAccount", "create_keyfile_json", "decode_keyfile_json"]
