"""`python -m storage.weights.warm` compiles what weight deltas need, so that no process has to wait for it later."""

import numpy as np

from protocol.delta.delta import FORMATS, decode_tensor, encode_tensor

if __name__ == "__main__":
    for dtype, form in FORMATS.items():
        base = np.arange(4096, dtype=f"<u{form.width // 8}")
        new = base + (base % 64 == 0).astype(base.dtype)
        delta = encode_tensor(base.view(np.uint8), new.view(np.uint8), dtype)
        decode_tensor(memoryview(delta), base.view(np.uint8), dtype)
