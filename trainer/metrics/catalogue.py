"""A step's record (a line of `metrics.jsonl`) as single numbers with names, help and labels, for every sink."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

SCALARS = {
    "step": "Policy step that was made",
    "loss": "Loss, mean over updates",
    "heldout_loss": "Loss on held-out conversations (fine-tuning)",
    "reward_mean": "Reward after length penalty, mean over rollouts",
    "task_reward_mean": "Task reward, mean over rollouts",
    "entropy": "Entropy of the policy in nats, mean over trained tokens",
    "grad_norm": "Largest gradient norm of the step's updates, before clipping",
    "clip_low": "Share of tokens on which the lower bound of the trust region acted",
    "clip_high": "Share of tokens on which the upper bound of the trust region acted",
    "kl": "Estimated KL divergence from the policy before the step, mean over trained tokens",
    "mismatch": "Estimated KL divergence of the trainer's policy from the workers', mean over trained tokens",
    "length_error": "Mean distance of answers from their target lengths, in tokens",
    "output_length_mean": "Output tokens, mean over rollouts",
    "groups_used": "Groups with signal that were trained on",
    "groups_dropped": "Groups without signal that were dropped",
    "dropped_share": "Share of the step's groups that were dropped",
    "rollouts": "Rollouts of the step, dropped groups included",
    "tokens": "Output tokens that were trained on",
    "learning_rate": "Learning rate of the last update",
    "staleness_mean": "Policy steps between a file's policy and the one it was trained into, mean over files",
    "tokens_per_second": "Tokens, prompts included, trained per second of training",
    "mfu": "Share of the device's peak floating-point operations that training used",
    "idle_share": "Share of the step's time that the trainer waited for files",
    "seconds": "Seconds that training the step took",
}
LABELLED = {
    "task_reward": ("Task reward by environment, mean over rollouts", ("environment",)),
    "mismatch_kl": ("Estimated KL divergence of the trainer's policy from a node's", ("node", "engine", "staleness")),
    "mismatch_absolute": ("Mean |difference| of log-probabilities, trainer and node", ("node", "engine", "staleness")),
    "files": ("Files trained on by their staleness in policy steps", ("staleness",)),
    "idle_seconds": ("Seconds waited for files by what was missing", ("cause",)),
    "phase_seconds": ("Seconds of the step by what the trainer did", ("phase",)),
}
HELP = SCALARS | {name: help for name, (help, _) in LABELLED.items()}


@dataclass(frozen=True)
class MetricSample:
    """One number of a step. `labels` are those of LABELLED, none for a scalar."""

    name: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """The name with its labels' values, for sinks without labels: `idle_seconds/judging`."""
        return "/".join([self.name, *self.labels.values()])


def samples(record: Mapping[str, Any]) -> Iterator[MetricSample]:
    """Every number of a step's record; what a record lacks is left out."""
    for name in SCALARS:
        if record.get(name) is not None:
            yield MetricSample(name, float(record[name]))
    for environment, reward in record.get("rewards_by_environment", {}).items():
        yield MetricSample("task_reward", reward, {"environment": environment})
    for one in record.get("mismatches", ()):
        labels = {"node": one["node"], "engine": one["engine"], "staleness": str(one["staleness"])}
        yield MetricSample("mismatch_kl", one["kl"], labels)
        yield MetricSample("mismatch_absolute", one["absolute"], labels)
    for staleness, files in record.get("staleness", {}).items():
        yield MetricSample("files", float(files), {"staleness": str(staleness)})
    for cause, seconds in record.get("idle", {}).items():
        yield MetricSample("idle_seconds", seconds, {"cause": cause})
    for phase, seconds in record.get("timings", {}).items():
        yield MetricSample("phase_seconds", seconds, {"phase": phase})
