"""`python -m attacks.worker --attack weights-noise=0.02 --config worker.json`: an ordinary worker that cheats."""

from typing import TYPE_CHECKING

from attacks.base import launch
from attacks.registry import find
from worker.config import WorkerConfig

if TYPE_CHECKING:
    from worker.daemon import Worker


def _build(attack: str, config: WorkerConfig) -> "Worker":
    from worker.daemon import Worker
    from worker.submit import WorkerCollaborators

    cheat, strength = find(attack)

    collaborators = WorkerCollaborators.connect(config, lambda pool, engine: cheat.build(pool, engine, strength))
    return Worker(config, collaborators)


if __name__ == "__main__":
    launch(__doc__, WorkerConfig, _build, required=True, help="name or name=strength")
