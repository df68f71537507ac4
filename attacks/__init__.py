"""Cheating workers and lazy validators, to show what the checks catch. Nothing of muster imports this package."""
