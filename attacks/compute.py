"""Cheaper arithmetic than the pool's: the whole computation in bfloat16."""

from attacks.base import Cheat, attack
from engines.base import Engine
from protocol.config import PoolConfig


@attack("compute-bf16", "computes in bfloat16 where the pool asks for float32 (transformers engine)")
class ComputeBf16(Cheat):
    def __init__(self, config: PoolConfig, engine: Engine, strength: float) -> None:
        from engines.hf import TransformersEngine

        super().__init__(config, TransformersEngine(dtype="bfloat16"), strength)
