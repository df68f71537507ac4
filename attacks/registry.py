"""Every attack by its name."""

from attacks import assignment, curriculum, fabricate, proofs, rewards, sampling, theft, tokens, turns, weights
from attacks.base import REGISTRY as REGISTRY
from attacks.base import Attack
from protocol.errors import ConfigError

MODULES = (assignment, fabricate, proofs, rewards, sampling, theft, tokens, turns, weights)
"""Imported, so that their attacks are registered."""


def find(text: str) -> tuple[Attack, float]:
    """An attack from `name` or `name=strength`. Raises ConfigError listing the known ones."""
    name, _, value = text.partition("=")
    known = REGISTRY | turns.TURN_ATTACKS | curriculum.CURRICULUM_ATTACKS
    if name not in known:
        raise ConfigError(f"unknown attack `{name}`", "known are " + ", ".join(sorted(known)))
    try:
        return known[name], float(value) if value else known[name].default
    except ValueError:
        raise ConfigError(f"`{value}` is not a strength", f"write {name}=<number>") from None
