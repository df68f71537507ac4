"""Every attack of a worker by its name; attacks of a whole process are modules that are started instead."""

from attacks import claims, text, turns, weights
from attacks.base import REGISTRY as REGISTRY
from attacks.base import Attack
from protocol.errors import ConfigError

MODULES = (claims, text, turns, weights)  # importing these registers their attacks


def find(spec: str) -> tuple[Attack, float]:
    """Return the attack and strength that `name` or `name=strength` means. Raises ConfigError listing the known."""
    name, _, value = spec.partition("=")
    known = REGISTRY | turns.TURN_ATTACKS | claims.CURRICULUM_ATTACKS
    if name not in known:
        raise ConfigError(f"unknown attack `{name}`", "known are " + ", ".join(sorted(known)))
    try:
        return known[name], float(value) if value else known[name].default
    except ValueError:
        raise ConfigError(f"`{value}` is not a strength", f"write {name}=<number>") from None
