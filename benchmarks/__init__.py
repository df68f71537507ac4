"""Figures that the documentation claims, each from one command: `python -m benchmarks <name> [--quick]`."""
