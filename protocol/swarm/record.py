"""A sharer's record of truthfulness, as one receiver keeps it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum


class Breach(StrEnum):
    """What a member signed and every other member can show to be wrong."""

    FALSE_REWARD = "false reward"
    OTHER_PROBLEM = "another problem"
    TWO_ENVELOPES = "two envelopes of one round"


@dataclass(frozen=True)
class TruthRecord:
    """`true`: groups whose rewards were what they were said to be; `breaches`: times it was found out; `unfit`: groups
    that were true but no use here, such as text that this member's tokenizer cannot take: no fault of the sharer.

    Of the groups that were drawn, `trained` were trained on and `doubted` were not, since the receiver's own policy
    would not have said them. That proves nothing: a better policy surprises too.
    """

    true: int = 0
    breaches: int = 0
    unfit: int = 0
    trained: int = 0
    doubted: int = 0

    @property
    def trust(self) -> float:
        """1 without a breach, falling by half with each. Rewards are deterministic: one breach is a lie or a broken
        machine, and true groups do not wash it away."""
        return 0.5**self.breaches

    @property
    def plausibility(self) -> float:
        """1 of who was never doubted, nearly the share of the groups that were not doubted of who was drawn often."""
        return (1 + self.trained) / (1 + self.trained + self.doubted)

    def plus(self, **more: int) -> "TruthRecord":
        """With so many more of each that is named."""
        return replace(self, **{name: getattr(self, name) + count for name, count in more.items()})


Records = Mapping[str, TruthRecord]
"""By the sharer's address."""
