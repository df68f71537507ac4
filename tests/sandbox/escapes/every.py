"""All attempts, by what they would cost a machine that nothing protects."""

from .base import Attempt
from .files import FILES
from .limits import LIMITS
from .network import NETWORK
from .privilege import DEVICES, PRIVILEGE, PROCESSES

HARMLESS: tuple[Attempt, ...] = (*NETWORK, *FILES, *PROCESSES, *LIMITS)
"""Also on a machine that nothing protects."""
ATTEMPTS: tuple[Attempt, ...] = (*HARMLESS, *PRIVILEGE, *DEVICES)
