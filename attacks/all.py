"""Importing this module fills the registry."""

from attacks import assignment, compute, fabricate, partial, proofs, rewards, sampling, theft, tokens, weights

__all__ = [
    "assignment",
    "compute",
    "fabricate",
    "partial",
    "proofs",
    "rewards",
    "sampling",
    "theft",
    "tokens",
    "weights",
]
