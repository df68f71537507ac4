"""Thinking budgets: the target lengths that a node draws from, by the class it declared when its key was made.

A node's class follows from its address, and a node works only on steps whose seed is later than its joining. So a class
is declared before any seed it could be chosen by, costs no transaction, and lasts as long as the node.
"""

from protocol.config import WorkConfig


def budget_class(node: str, classes: int) -> int:
    """The class of a node (an address), 0 (weakest) … `classes` − 1: its place among all addresses, cut into equal
    parts. A key from the strongest quarter is in the strongest class of two, three and four."""
    return int(node, 16) * classes >> 160


def targets_of(work: WorkConfig, node: str) -> tuple[int, ...]:
    """The target lengths that a node's work is drawn from; empty where the pool has none."""
    if not work.classes:
        return work.targets
    return work.classes[budget_class(node, len(work.classes))]


def all_targets(work: WorkConfig) -> tuple[int, ...]:
    """Every target length of a pool, ascending."""
    return tuple(sorted({*work.targets, *(length for lengths in work.classes for length in lengths)}))
