"""How often a sharer's right answers may say what one's own policy says seldom: small pure functions.

A policy is right where it is sure, so right answers seldom surprise another that has learnt the same. A plant surprises
again and again, in all right answers of its sharer, and each time by no more than an own completion now and then does.
One such group proves nothing, hence nobody is doubted for one; but of what is trained on of a sharer no more than a
ration may be of that kind.
"""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence

from protocol.swarm.places import DrawnLately


def strangeness(worst: Sequence[float], rewards: Sequence[float]) -> float:
    """The median, over the completions above their group's mean reward, of a completion's largest surprise in nats; 0
    where none is above it, and so none is made likelier."""
    mean = statistics.fmean(rewards)
    better = [one for one, reward in zip(worst, rewards, strict=True) if reward > mean]
    return statistics.median(better) if better else 0.0


def ration_allows(rare: int, trained: int, ration: float) -> bool:
    """Whether one more rare group may be trained on, after `trained` groups of which `rare` were. The first is not,
    before enough that are not rare: else each new key would have one for nothing."""
    return rare + 1 <= ration * (trained + 1)


class HabitRations:
    """A round's, after what of each sharer was trained on `lately`. `ration` None: whatever there is."""

    def __init__(self, lately: Mapping[str, DrawnLately], ration: float | None) -> None:
        self._lately, self._ration = lately, ration
        self._trained: Counter[str] = Counter()
        self._rare: Counter[str] = Counter()

    def allow(self, sharer: str) -> bool:
        """Whether one more rare group of it may be trained on."""
        if self._ration is None:
            return True
        known = self._lately.get(sharer, DrawnLately())
        return ration_allows(known.rare + self._rare[sharer], known.trained + self._trained[sharer], self._ration)

    def take(self, sharer: str, rare: bool) -> None:
        self._trained[sharer] += 1
        self._rare[sharer] += rare
