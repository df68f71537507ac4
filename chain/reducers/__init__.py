"""How each event changes the state: one small function per event, registered by contract and name."""

from chain.reducers import court, pools, stakes
from chain.reducers.registry import HANDLERS

__all__ = ["HANDLERS", "court", "pools", "stakes"]
