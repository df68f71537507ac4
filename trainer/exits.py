"""Exit codes of the trainer's process, and the errors that lead to two of them; docs/design/training.md says what to
do."""

from protocol.errors import MusterError

EXIT_DONE = 0
EXIT_WRONG = 2  # what a person must put right, as for every command
EXIT_LOST = 3  # a rank is gone: start again
EXIT_STOPPED = 4  # as asked, before the last step: start again to go on
EXIT_UNSTABLE = 5  # a guard stopped the run before a bad step was published
FINAL_EXITS = frozenset({EXIT_DONE, EXIT_WRONG, EXIT_STOPPED, EXIT_UNSTABLE})


class RanksLostError(MusterError):
    """Another rank died or fell silent: this process can only end, all start again and resume together."""


class UnstableError(MusterError):
    """A step must not be published; the checkpoint before it is the last good state."""
