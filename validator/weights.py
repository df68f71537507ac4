"""The weights that a pool's files are judged with."""

from collections.abc import Callable
from pathlib import Path

from protocol.seeds import Work
from runtime.pool_client import PoolClient
from runtime.weights_ahead import WeightsAhead

_REACH = 4
"""Policy steps beyond the newest that was asked for, which are still fetched ahead."""


class JudgedWeights:
    """Brings the weights of a file's policy step, every byte checked each time: a verdict rests on them. As long as the
    pool gives us files to judge, each new step is fetched once it is published, so that no file waits for a download; a
    pool that never asks for us costs nothing. `keep`: how many steps stay in the cache.
    """

    def __init__(self, client: PoolClient, poll_seconds: float, keep: Callable[[], int]) -> None:
        self._client, self._keep, self._asked = client, keep, -1
        self._ahead = WeightsAhead(client, poll_seconds, self._wanted, keep)
        client.before_close.append(self._ahead.stop)
        self._ahead.start()

    def __call__(self, work: Work) -> Path:
        """Raises what `PoolClient.weights` raises. A fetch of the same step under way is waited for."""
        self._asked = max(self._asked, work.id.step)
        return self._client.weights(work, self._keep())

    def _wanted(self, step: int) -> bool:
        return self._asked >= 0 and step - self._asked <= _REACH
