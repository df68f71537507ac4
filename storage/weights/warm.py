"""`python -m storage.weights.warm` compiles what weight deltas need, so that no process has to wait for it later.

`load_decoder` loads what was compiled into this process, which takes a second: while the shards are on their way.
"""

import numpy as np

from protocol.delta.tensors import FORMATS, decode_tensor, encode_tensor

_DTYPE, _DELTA = "BF16", bytes.fromhex("031c010003801e008002bb2f020000c6020000c6020000c60200010000b8")
"""A delta of the 64 smallest floats of this type, of which every sixteenth moves to the next."""


def load_decoder() -> None:
    base = np.arange(64, dtype="<u2")
    decode_tensor(memoryview(_DELTA), base.view(np.uint8), _DTYPE)


def main() -> None:
    for dtype, form in FORMATS.items():
        base = np.arange(4096, dtype=f"<u{form.width // 8}")
        new = base + (base % 64 == 0).astype(base.dtype)
        delta = encode_tensor(base.view(np.uint8), new.view(np.uint8), dtype)
        decode_tensor(memoryview(delta), base.view(np.uint8), dtype)


if __name__ == "__main__":
    main()
