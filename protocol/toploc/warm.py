"""`python -m protocol.toploc.warm` compiles what proofs and sampling need, so that no process waits for it later."""

import numpy as np
import torch

from protocol.sampling import noise
from protocol.toploc import proofs
from protocol.toploc.codec import CHUNK


def main() -> None:
    for width in (128, 512):
        hidden = torch.randn(CHUNK, width).bfloat16()
        proofs.verify(hidden, proofs.build(hidden))
    noise.choose(np.zeros((1, 8), dtype=np.float32), [(0, 0, 0)], [0], 1.0)


if __name__ == "__main__":
    main()
