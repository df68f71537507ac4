"""`run(config_path)`: one worker process."""

from pathlib import Path

from runtime.entry import run_role
from runtime.process import Daemon, start
from worker.config import WorkerConfig
from worker.isolation import enter


def run(config_path: Path) -> None:
    """Work, isolated as the configuration says, until SIGINT or SIGTERM, the pool's end (exit code 0) or the node's
    ejection (exit code 3)."""
    enter(config_path)
    start(config_path, WorkerConfig, _build)


def _build(config: WorkerConfig) -> Daemon:
    from worker.collaborators import WorkerCollaborators
    from worker.daemon import Worker

    return Worker(config, WorkerCollaborators.connect(config))


if __name__ == "__main__":
    run_role(run)
