"""Thinking budgets: the target lengths that a node draws from, by the class it declared when its key was made.

A node's class follows from its address, and a node works only on steps whose seed is later than its joining. So a class
is declared before any seed it could be chosen by, costs no transaction, and lasts as long as the node.
"""

from protocol.config import WorkConfig
from protocol.environments import EnvironmentConfig


def budget_class(node: str, classes: int) -> int:
    """The class of a node (an address), 0 (weakest) … `classes` − 1: its place among all addresses, cut into equal
    parts. A key from the strongest quarter is in the strongest class of two, three and four."""
    return int(node, 16) * classes >> 160


def targets_of(work: WorkConfig, node: str, environment: EnvironmentConfig | None = None) -> tuple[int, ...]:
    """The target lengths that a node's work is drawn from, those of an environment that has its own; empty where there
    are none."""
    if environment is not None and environment.targets is not None:
        return environment.targets
    if not work.classes:
        return work.targets
    return work.classes[budget_class(node, len(work.classes))]


def all_targets(work: WorkConfig, environment: EnvironmentConfig | None = None) -> tuple[int, ...]:
    """Every target length of a pool, or of an environment that has its own, ascending."""
    if environment is not None and environment.targets is not None:
        return tuple(sorted({*environment.targets}))
    return tuple(sorted({*work.targets, *(length for lengths in work.classes for length in lengths)}))
