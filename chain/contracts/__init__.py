"""Typed calls of the suite's contracts, one module per contract or pair of contracts."""
