"""What several tries at each problem say: the mean reward (avg@k) and the chance that one of k tries succeeds (pass@k).

Arguments are the tries of each problem; all have n of them.
"""

import math
from collections.abc import Sequence


def average(rewards: Sequence[Sequence[float]]) -> float:
    """Mean reward over all tries, avg@n."""
    return math.fsum(reward for tries in rewards for reward in tries) / sum(map(len, rewards))


def standard_error(rewards: Sequence[Sequence[float]]) -> float:
    """Of `average`: problems are independent draws, the tries of one problem are not. 0 for a single problem."""
    count = len(rewards)
    if count < 2:
        return 0.0
    means = [math.fsum(tries) / len(tries) for tries in rewards]
    centre = math.fsum(means) / count
    variance = math.fsum((mean - centre) ** 2 for mean in means) / (count - 1)
    return math.sqrt(variance / count)


def pass_at(k: int, tries: int, solved: Sequence[int]) -> float:
    """Probability that k tries hold a success, without bias from `tries` ≥ k of them: the mean over problems of
    1 − C(tries − c, k) / C(tries, k), c successes (Chen et al. 2021, arXiv 2107.03374)."""
    if not 1 <= k <= tries:
        raise ValueError(f"pass@{k} cannot be told from {tries} tries")
    ways = math.comb(tries, k)
    return math.fsum(1 - math.comb(tries - count, k) / ways for count in solved) / len(solved)


def reported_ks(tries: int) -> tuple[int, ...]:
    """Powers of two up to `tries`, and `tries` itself."""
    powers = [1 << power for power in range(tries.bit_length())]
    return tuple(sorted({*powers, tries}))
