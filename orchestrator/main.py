"""The orchestrator: `muster pool serve --config file`, in one process or several."""

from pathlib import Path

from orchestrator.config import OrchestratorConfig
from orchestrator.server import Orchestrator
from orchestrator.shared_metrics import forget_metrics
from runtime.entry import run_role
from runtime.http_server import held
from runtime.prefork import Prefork
from runtime.process import Daemon, start


def run(config_path: Path) -> None:
    """Serve until SIGINT or SIGTERM. Raises MusterError, before anything is served, for what a user can mend: port in
    use, wrong password, unreachable chain or storage, another chain, a pool with another owner or configuration."""
    start(config_path, OrchestratorConfig, daemon_of)


def daemon_of(config: OrchestratorConfig) -> Daemon:
    """The service, or the parent of its processes."""
    count = config.processes
    if count == 1:
        return Orchestrator(config, config.key.open())
    port = held(config.host, config.port)
    forget_metrics(config.home)
    signer = config.key.open()
    return Prefork(count, lambda number: Orchestrator(config, signer, number, count), port)


if __name__ == "__main__":
    run_role(run)
