"""Does a miss come with the difference of scores that it takes?

An engine whose rounding leads it past the token that ours picks has scores unlike ours: that of its own token is higher
by the score gap, or that of the expected one lower. Either changes ln p of its token. The least change is where only
the expected token's score fell by the gap g: then ln p of the other is larger by −ln(1 − p·(1 − e^(−g))), about p·g,
for the expected token's p. Who picks a token by other means and proves the text honestly claims our own ln p.
"""

import math

_MOST_GAP = 30.0
"""Beyond it e^(−gap) is lost in a float, and 1 − p with it."""


def unexplained(gap: float, claimed: float, own: float, expected: float) -> float:
    """The share of a miss, 0 to 1, that the difference of ln p leaves unexplained.

    gap: score gap of the miss, > 0. claimed, own: ln p of the chosen token, as the file says and as the verifier finds.
    expected: the verifier's ln p of the token that the noise picks.
    """
    least = -math.log1p(math.exp(min(0.0, expected)) * math.expm1(-min(gap, _MOST_GAP)))
    found = abs(claimed - own)
    return 1.0 - found / least if found < least else 0.0
