"""Recovering a public key from a signature by libsecp256k1, in calls that keep the interpreter's lock.

`coincurve` gives the lock up for each of its three calls and waits to have it back: beside a busy thread that takes
longer than the recovery, forty microseconds. The library is coincurve's; only the way into it is ours.
"""

import ctypes
from collections.abc import Callable

from coincurve._libsecp256k1 import ffi, lib
from coincurve.context import GLOBAL_CONTEXT

_UNCOMPRESSED = 2
_CONTEXT = ctypes.c_void_p(int(ffi.cast("uintptr_t", GLOBAL_CONTEXT.ctx)))
_Key = ctypes.c_char * 64
_Signature = ctypes.c_char * 65
_Point = ctypes.c_char * 65


def _function(name: str, *kinds: type) -> Callable[..., int]:
    made = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *kinds)
    return made(int(ffi.cast("uintptr_t", ffi.addressof(lib, name))))


_parse = _function(
    "secp256k1_ecdsa_recoverable_signature_parse_compact", ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
)
_recover = _function("secp256k1_ecdsa_recover", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
_serialize = _function(
    "secp256k1_ec_pubkey_serialize", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint
)


def recover(digest32: bytes, rs: bytes, parity: int) -> bytes | None:
    """The public key (x ‖ y, 64 bytes) for which r ‖ s (64 bytes) signs a digest; `parity` (0 or 1) says which of the
    two. None if there is no such key. Any s below the order is taken, high ones too."""
    if len(digest32) != 32 or len(rs) != 64 or parity not in (0, 1):
        raise ValueError("a digest has 32 bytes, r and s have 64, a parity is 0 or 1")
    signature, key, point, size = _Signature(), _Key(), _Point(), ctypes.c_size_t(65)
    if not _parse(_CONTEXT, signature, rs, parity) or not _recover(_CONTEXT, key, signature, digest32):
        return None
    if not _serialize(_CONTEXT, point, ctypes.byref(size), key, _UNCOMPRESSED) or size.value != 65:
        return None
    return point.raw[1:]
