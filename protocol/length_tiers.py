"""Length tiers: the target lengths that a node draws from, by the tier that its address falls into.

A node works only on steps whose seed is later than its join, so its tier is fixed before any seed it could be chosen
by. It costs no transaction and lasts as long as the node.
"""

from protocol.config import WorkConfig
from protocol.environments import EnvironmentConfig


def length_tier(node: str, tiers: int) -> int:
    """Return the tier of a node (an address), 0 (weakest) … `tiers` − 1: its place among all addresses, cut into equal
    parts. A key from the strongest quarter is in the strongest tier of two, three and four."""
    return int(node, 16) * tiers >> 160


def targets_of(work: WorkConfig, node: str, environment: EnvironmentConfig | None = None) -> tuple[int, ...]:
    """Return the target lengths that a node's work is drawn from, those of an environment that has its own; empty where
    there are none."""
    if environment is not None and environment.targets is not None:
        return environment.targets
    if not work.length_tiers:
        return work.targets
    return work.length_tiers[length_tier(node, len(work.length_tiers))]


def all_targets(work: WorkConfig, environment: EnvironmentConfig | None = None) -> tuple[int, ...]:
    """Return every target length of a pool, or of an environment that has its own, ascending."""
    if environment is not None and environment.targets is not None:
        return tuple(sorted({*environment.targets}))
    return tuple(sorted({*work.targets, *(length for lengths in work.length_tiers for length in lengths)}))
