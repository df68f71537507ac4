"""What the trainer needs of a rollout, whichever file or engine it came from."""

from dataclasses import dataclass

from protocol.training import AdvantageName


@dataclass(frozen=True)
class Source:
    """Who made a rollout: a node, with an engine (its build) and the weights of a policy step."""

    node: str
    engine: str
    policy_step: int


@dataclass(frozen=True)
class GroupSettings:
    """What the rollouts of one environment have of their own: its name, the estimator of advantages (None: the run's),
    and what multiplies them."""

    environment: str = ""
    advantage: AdvantageName | None = None
    scale: float = 1.0


@dataclass(frozen=True)
class TrainRollout:
    """One completion: `output` includes EOS; `reward` is the trainer's own (float32), never the file's.

    `advantage` is known once its group is complete. `logprobs`: ln p of each output token under the policy that
    generated it, or empty where unknown. `target`: the length that was asked for (0: none). `source`: None where it
    does not matter. `settings` are the same for all of a group.
    """

    prompt: tuple[int, ...]
    output: tuple[int, ...]
    reward: float
    task_reward: float = 0.0
    logprobs: tuple[float, ...] = ()
    advantage: float = 0.0
    target: int = 0
    source: Source | None = None
    settings: GroupSettings = GroupSettings()

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.output)


Group = tuple[TrainRollout, ...]
"""All completions of one problem by one submission."""
