"""Is the deployment file in order, and which chain does it name."""

from pathlib import Path

from cli.doctor.base import Prerequisite, failed, ok
from protocol.errors import MusterError


def look(path: Path) -> tuple[Prerequisite, str | None, int | None]:
    """What the file says: what was found, an RPC URL and the chain id it names (None if it cannot be read)."""
    from cli.session import load_deployment, rpc_urls

    try:
        deployment = load_deployment(path)
    except MusterError as error:
        return failed("deployment", error.what, error.hint), None, None
    try:
        url = rpc_urls(deployment.network, None)[0]
    except MusterError:
        url = None
    return ok("deployment", f"{path}: {deployment.network}, chain {deployment.chain_id}"), url, deployment.chain_id
