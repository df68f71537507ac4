"""How each event changes the state: one small function per event, registered by contract and name."""

from protocol.chain.folding import court, pools, stakes
from protocol.chain.folding.registry import HANDLERS

__all__ = ["HANDLERS", "court", "pools", "stakes"]
