"""Every attack by its name."""

from attacks import assignment, fabricate, proofs, rewards, sampling, theft, tokens, weights
from attacks.base import REGISTRY as REGISTRY
from attacks.base import Attack
from protocol.errors import ConfigError

MODULES = (assignment, fabricate, proofs, rewards, sampling, theft, tokens, weights)
"""Imported, so that their attacks are registered."""


def find(text: str) -> tuple[Attack, float]:
    """An attack from `name` or `name=strength`. Raises ConfigError listing the known ones."""
    name, _, value = text.partition("=")
    if name not in REGISTRY:
        raise ConfigError(f"unknown attack `{name}`", "known are " + ", ".join(sorted(REGISTRY)))
    try:
        return REGISTRY[name], float(value) if value else REGISTRY[name].default
    except ValueError:
        raise ConfigError(f"`{value}` is not a strength", f"write {name}=<number>") from None
