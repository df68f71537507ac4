"""Governance: parameters, pause, and what the timelock is to do."""

from eth_utils.crypto import keccak

from chain.events import Event
from chain.proposals import Proposal, ProposedCall
from chain.reducers.registry import on
from chain.state import State

_ROLES = {keccak(text=f"{name.upper()}_ROLE"): name for name in ("proposer", "canceller", "executor", "guardian")}
_ROLES[bytes(32)] = "admin"


@on("Params", "ValuesSet")
def _values_set(state: State, event: Event) -> None:
    state.params = dict(event.args["values"])


@on("Params", "ValuesScheduled")
def _values_scheduled(state: State, event: Event) -> None:
    state.announced = {**event.args["values"], "since": event.args["time"]}


@on("Params", "PausedUntil")
def _paused_until(state: State, event: Event) -> None:
    state.paused_until = event.args["time"]


@on("Timelock", "CallScheduled")
def _call_scheduled(state: State, event: Event) -> None:
    """One event per call; the first begins the proposal, anew when it was cancelled before."""
    a = event.args
    if a["index"] == 0:
        ready_at = event.timestamp + a["delay"]
        state.proposals[_key(event)] = Proposal(a["id"], [], a["predecessor"], ready_at, event.block)
    state.proposals[_key(event)].calls.append(ProposedCall(a["target"], a["value"], a["data"]))


@on("Timelock", "CallSalt")
def _call_salt(state: State, event: Event) -> None:
    state.proposals[_key(event)].salt = event.args["salt"]


@on("Timelock", "CallExecuted")
def _call_executed(state: State, event: Event) -> None:
    state.proposals[_key(event)].status = "done"


@on("Timelock", "Cancelled")
def _cancelled(state: State, event: Event) -> None:
    state.proposals[_key(event)].status = "cancelled"


@on("Timelock", "RoleGranted")
def _role_granted(state: State, event: Event) -> None:
    role = _role(event)
    state.roles[role] = (*state.roles.get(role, ()), event.args["account"])


@on("Timelock", "RoleRevoked")
def _role_revoked(state: State, event: Event) -> None:
    role = _role(event)
    state.roles[role] = tuple(one for one in state.roles[role] if one != event.args["account"])


def _key(event: Event) -> str:
    return "0x" + bytes(event.args["id"]).hex()


def _role(event: Event) -> str:
    role = bytes(event.args["role"])
    return _ROLES.get(role, "0x" + role.hex())
