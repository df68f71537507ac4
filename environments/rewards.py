"""Rewards in float32, the same bits for worker, validator and trainer.

Every function returns a Python float that is exactly a float32 value, so it survives the rollout file's float32
columns unchanged and can be compared with `==`.
"""

import numpy as np


def float32(value: float) -> float:
    """The nearest float32, as a Python float."""
    return float(np.float32(value))


def length_penalty(alpha: float, target: int, length: int) -> float:
    """alpha · |target − length| tokens (output tokens, EOS included); 0 where there is no target (target 0)."""
    if target <= 0 or alpha == 0.0:
        return 0.0
    return float(np.float32(alpha) * np.float32(abs(target - length)))


def reward(task: float, penalty: float) -> float:
    """task − penalty, subtracted in float32."""
    return float(np.float32(task) - np.float32(penalty))
