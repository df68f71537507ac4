"""Exit codes of the trainer's process, and the error that means one of them; docs/training.md says what to do."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from protocol.errors import MusterError
from trainer.config import GuardConfig

if TYPE_CHECKING:
    from trainer.step_metrics import StepMetrics


EXIT_DONE = 0
EXIT_WRONG = 2  # what a person must put right, as for every command
EXIT_LOST = 3  # a rank is gone: start again
EXIT_STOPPED = 4  # as asked, before the last step: start again to go on
EXIT_UNSTABLE = 5  # a guard stopped the run before a bad step was published
FINAL_EXITS = frozenset({EXIT_DONE, EXIT_WRONG, EXIT_STOPPED, EXIT_UNSTABLE})


class RanksLostError(MusterError):
    """Another rank died or fell silent: this process can only end, all start again and resume together."""


# Signs that training has become unstable, looked for before a step is published: nobody should generate with it.
#
# A file that does it alone is left out (`trainer/daemon.py`), so that no stranger can stop a pool.


_LEAST_HISTORY = 5


class UnstableError(MusterError):
    """A step must not be published; the checkpoint before it is the last good state."""


def check_step(config: GuardConfig, metrics: "StepMetrics", earlier: Sequence[Mapping[str, Any]]) -> None:
    """Raise UnstableError if a step's loss, entropy or gradient is not a number, if its gradient norm is far above
    those of `earlier` steps' records, or if its entropy has suddenly gone. A step without signal is never unstable."""
    if not metrics.groups_used:
        return
    trouble = _not_finite(metrics) or _exploding(config, metrics, earlier) or _collapsing(config, metrics, earlier)
    if trouble:
        raise UnstableError(
            f"training has become unstable: step {metrics.step} has {trouble}; it is not published, and the checkpoint "
            f"of step {metrics.step - 1} is kept",
            "look at the rollouts of its files, then name bad ones in `exclude` or change `guards`, and start again",
        )


def _not_finite(metrics: "StepMetrics") -> str:
    figures = {"loss": metrics.loss, "entropy": metrics.entropy, "gradient norm": metrics.grad_norm}
    return ", ".join(f"{name} {value}" for name, value in figures.items() if not math.isfinite(value))


def _exploding(config: GuardConfig, metrics: "StepMetrics", earlier: Sequence[Mapping[str, Any]]) -> str:
    norms = [entry["grad_norm"] for entry in earlier if entry["grad_norm"] > 0][-config.norm_window :]
    if len(norms) < _LEAST_HISTORY:
        return ""
    usual = statistics.median(norms)
    if metrics.grad_norm <= config.norm_factor * usual:
        return ""
    return f"a gradient norm of {metrics.grad_norm:.4g}, {metrics.grad_norm / usual:.0f} times that of earlier steps"


def _collapsing(config: GuardConfig, metrics: "StepMetrics", earlier: Sequence[Mapping[str, Any]]) -> str:
    if metrics.entropy < config.entropy_floor:
        return f"an entropy of {metrics.entropy:.4g}, below `guards.entropy_floor`"
    known = [entry["entropy"] for entry in earlier if entry["tokens"]][-_LEAST_HISTORY:]
    if len(known) < _LEAST_HISTORY:
        return ""
    usual = statistics.median(known)
    if metrics.entropy >= config.entropy_share * usual:
        return ""
    return f"an entropy of {metrics.entropy:.4g}, after {usual:.4g} in the steps before"
