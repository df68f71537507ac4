"""`run(config_path)`: one worker process for one node."""

from pathlib import Path
from typing import Any

from chain.deployment import Deployment
from protocol.api.work import POOLS_DOMAIN, SUBMISSION_STRUCT
from protocol.http.signing import service_url
from runtime.entry import run_role
from runtime.isolation import enter
from runtime.process import Daemon, start
from runtime.signer import SigningRules
from worker.config import WorkerConfig

_PATHS = ("/v1/leases", "/v1/uploads", "/v1/submissions", "/v1/heartbeats", "/v1/sources")


def signing_rules(config: WorkerConfig, deployment: Deployment, _: list[str]) -> SigningRules:
    """Return what a worker may have signed: requests to the pool's service, submissions of its own files, and the
    transactions by which it submits with a receipt."""

    def is_own(address: str, pool: object, node: object, *_: object) -> bool:
        return (pool, str(node).lower()) == (config.pool, address.lower())

    def submits_own(address: str, named: dict[str, Any]) -> bool:
        nodes = {str(file["node"]).lower() for file in named["files"]}
        return named["pool"] == config.pool and nodes == {address.lower()}

    return SigningRules(
        config,
        deployment,
        _PATHS,
        {("Pools", POOLS_DOMAIN, SUBMISSION_STRUCT): is_own},
        {"Pools.submitLane": submits_own},
        audience=service_url(config.orchestrator),
    )


def run(config_path: Path) -> None:
    """Work until SIGINT or SIGTERM, the pool's end (exit code 0) or the node's ejection (exit code 3)."""
    enter(config_path, WorkerConfig, "worker", signing_rules)
    start(config_path, WorkerConfig, build)


def build(config: WorkerConfig) -> Daemon:
    from worker.daemon import Worker
    from worker.submit import WorkerCollaborators

    return Worker(config, WorkerCollaborators.connect(config))


if __name__ == "__main__":
    run_role(run)
