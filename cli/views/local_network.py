"""What `muster up` and `muster ps` show of a local network."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cli.output import clock, fields, seconds, table
from localnet.background import (
    LastingSettings,
    NetworkFolder,
    NetworkPhase,
    NetworkState,
    ProcessEntry,
    ProcessState,
    plan_of,
    service_status,
)
from protocol.errors import UnreachableError
from runtime.supervisor import exit_text


@dataclass(frozen=True)
class LocalNetwork:
    """A network as it was found. `waits`: process → what it says it waits for, from the service; `service`: why it did
    not say, or empty. `state` is None before the first start."""

    folder: NetworkFolder
    state: NetworkState | None
    waits: Mapping[str, Sequence[str]]
    service: str
    url: str
    now: float

    def waits_for(self, one: ProcessEntry) -> str:
        """What a process waits for, in words."""
        if one.restart_at is not None and one.exit_code is not None:
            left = max(0.0, one.restart_at - self.now)
            return f"its restart in {seconds(left)}, after {exit_text(one.exit_code)}"
        if one.state is ProcessState.STOPPED:
            return f"you: it ended with exit {one.exit_code}; see `muster logs {one.name}`"
        return "; ".join(self.waits.get(one.name, ()))

    def document(self) -> dict[str, Any]:
        processes = [] if self.state is None else self.state.processes
        return {
            "folder": str(self.folder.root),
            "phase": str(self.state.phase) if self.state else None,
            "doing": self.state.doing if self.state else "",
            "problem": self.state.problem if self.state else "",
            "supervisor": self.state.pid if self.state else None,
            "since": self.state.since if self.state else None,
            "url": self.url,
            "service": self.service,
            "processes": [
                one.model_dump(mode="json") | {"role": one.role, "waits": self.waits_for(one)} for one in processes
            ],
        }


def look(folder: NetworkFolder, settings: LastingSettings) -> LocalNetwork:
    """The network as it stands; a service that does not answer is said, not raised."""
    found, url = folder.state(), plan_of(folder, settings).http_url
    state = found.as_found() if found else None
    waits: dict[str, list[str]] = {}
    service = ""
    if state is not None and state.phase is NetworkPhase.UP:
        try:
            for wait in service_status(url)["waits"]:
                waits.setdefault(wait["who"], []).append(f"{wait['what']}, since {clock(wait['since'])}")
        except (UnreachableError, KeyError) as error:
            service = str(error)
    return LocalNetwork(folder, state, waits, service, url, time.time())


def all_well(found: LocalNetwork) -> bool:
    """Whether the network is up and no process is missing."""
    good = (ProcessState.RUNNING, ProcessState.FINISHED)
    state = found.state
    return state is not None and state.phase is NetworkPhase.UP and all(one.state in good for one in state.processes)


def process_table(found: LocalNetwork) -> str:
    """For people."""
    state = found.state
    if state is None:
        return f"the network in {found.folder.root} was never started; `muster up` starts it"
    head = f"{state.phase} since {clock(state.since)} · {found.folder.root}"
    lines = [head, *([state.problem] if state.problem else [])]
    if state.phase in (NetworkPhase.STARTING, NetworkPhase.STOPPING):
        lines.append(state.doing)
    if found.service:
        lines.append(found.service)
    if state.phase is NetworkPhase.DOWN:
        return "\n".join(lines)
    rows = [
        (one.name, one.role, one.state, one.pid or "-", clock(one.since), one.restarts, found.waits_for(one) or "-")
        for one in state.processes
    ]
    return "\n".join([*lines, "", table(["process", "role", "state", "pid", "since", "restarts", "waits for"], rows)])


def network_lines(folder: NetworkFolder, settings: LastingSettings) -> str:
    """Where everything is, once it is up."""
    plan = plan_of(folder, settings)
    return fields(
        {
            "dashboard": f"{plan.http_url}/",
            "chain": f"{plan.rpc_url} (chain id {plan.chain_id})",
            "storage": plan.s3_url,
            "metrics": f"{plan.http_url}/metrics, http://127.0.0.1:{plan.metrics_port}/metrics (trainer)",
            "deployment": plan.deployment,
            "joining": f"muster node up --pool {plan.http_url}",
            "folder": folder.root,
            "more": "muster ps · muster logs -f · muster down",
        }
    )
