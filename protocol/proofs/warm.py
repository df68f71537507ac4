"""`python -m protocol.proofs.warm` compiles what proofs need, so that no process has to wait for it later."""

import torch

from protocol.proofs import toploc
from protocol.proofs.codec import CHUNK


def main() -> None:
    for width in (128, 512):
        hidden = torch.randn(CHUNK, width).bfloat16()
        toploc.verify(hidden, toploc.build(hidden))


if __name__ == "__main__":
    main()
